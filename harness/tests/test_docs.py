"""The pages of docs/: each has its place in the site, and the references leave nothing out."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from assay import harness
from assay.harness.cli.main import COMMANDS
from assay.harness.plugin import options
from assay.harness.results.records import RunRecord, SubjectRecord
from assay.harness.results.verdicts import Claim, Counterexample
from assay.harness.tests.support.sessions import ROOT

DOCS = ROOT / "docs"


def pages(nav: object) -> Iterator[str]:
    """The files that the site's navigation names."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict | list):
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from pages(each)


def test_every_page_has_a_place_in_the_navigation() -> None:
    named = list(pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert len(named) == len(set(named))
    assert all((DOCS / page).is_file() for page in named)
    assert {page.name for page in DOCS.glob("*.md")} <= set(named)


def test_the_page_of_the_schema_has_every_key() -> None:
    page = (DOCS / "schema.md").read_text()
    parts = (RunRecord, Claim, SubjectRecord, Counterexample)
    keys = [key for part in parts for key in part.__struct_fields__]
    assert len(keys) > 40
    assert not [key for key in keys if f"| `{key}` |" not in page]


class Declared:
    """Stands in for pytest's parser: which options and settings are declared."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def getgroup(self, *_: object) -> Declared:
        return self

    def addoption(self, name: str, *_: object, **__: object) -> None:
        self.names.append(name)

    addini = addoption


def test_the_reference_has_every_option() -> None:
    declared, page = Declared(), (DOCS / "reference.md").read_text()
    options.add(declared)  # type: ignore[arg-type]
    assert "--model" in declared.names
    assert not [name for name in declared.names if f"`{name}" not in page]


def test_commands_in_pages_exist() -> None:
    for page in DOCS.glob("*.md"):
        commands = set(re.findall(r"(?:^|`)assay ([a-z]+)\b", page.read_text(), re.MULTILINE))
        assert commands <= COMMANDS.keys(), page


DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("defects/*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_links_in_documents_lead_somewhere() -> None:
    for path in DOCUMENTS:
        links = [link for link in LINK.findall(path.read_text()) if "://" not in link]
        assert not [link for link in links if not (path.parent / link).exists()], path


def test_the_front_page_fits_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def test_no_page_is_longer_than_250_lines() -> None:
    """A longer one is about several subjects, or of several kinds, and is split by them."""
    assert [path for path in DOCUMENTS if len(path.read_text().splitlines()) > 250] == []


def test_the_promises_are_linked_and_name_the_test_that_shows_them() -> None:
    named = re.findall(r"`(harness/tests/\w+/\w+\.py)`", (ROOT / "SECURITY.md").read_text())
    assert named == ["harness/tests/models/test_untrusted.py"]
    assert (ROOT / named[0]).is_file()
    assert "](SECURITY.md)" in (ROOT / "README.md").read_text()


def test_a_release_has_one_version_and_one_date() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## \[([\d.]+)\] - ([\d-]+)$", changes, re.MULTILINE)
    assert newest is not None
    assert newest.groups() == (harness.__version__, str(cited["date-released"]))
    assert cited["version"] == harness.__version__
