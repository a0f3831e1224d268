"""Commands in documents and messages join an option to its path: a space lets pytest run code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.harness.tests.support.sessions import ROOT

PATHS = ("model", "evidence", "json", "report", "expectations", "device-map")
"""Assay's options whose values may be paths."""

APART = re.compile(rf"--({'|'.join(PATHS)})[ \n]+(?=['\"]?[\w./~<$])")
"""In documents, where an option that is mentioned ends in a backquote."""

APART_IN_CODE = re.compile(rf"--({'|'.join(PATHS)}) (?=[A-Z]{{2,}}|X\b|['\"]?[\w.-]*[./~:]\w)")
"""In Python, where options are mentioned in running text: with what can only be a value."""

PATTERNS = ("*.md", "docs/*.md", "docs/defects/*.md", "docs/run.svg", ".ci/*", "*.ini", "*.toml")
DOCUMENTS = sorted(file for pattern in PATTERNS for file in ROOT.glob(pattern))
ABOUT_IT = {"CHANGELOG.md", "SECURITY.md", "path_guard.py"}
"""These speak of the space itself."""


def apart(text: str, pattern: re.Pattern[str] = APART) -> list[str]:
    """The places of a text where an option and its path stand apart."""
    return [text[match.start() : match.end() + 20] for match in pattern.finditer(text)]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_documents_join_options_to_their_paths(path: Path) -> None:
    assert path.name in ABOUT_IT or not apart(path.read_text())


def test_docstrings_and_messages_do() -> None:
    rooms = ("harness", "claims", "fixtures", "benchmarks")
    files = [file for room in rooms for file in (ROOT / room).rglob("*.py")]
    files = [
        file
        for file in files
        if "tests" not in file.relative_to(ROOT).parts and file.name not in ABOUT_IT
    ]
    assert len(files) > 100
    wrong = {named(file): apart(file.read_text(), APART_IN_CODE) for file in files}
    assert not {name: places for name, places in wrong.items() if places}


@pytest.mark.parametrize(
    "text",
    [
        "pytest --model path/to/folder",
        "`tox -e claims -- --model tiny:llama`",
        "--model 'tiny:*'",
        "pytest --model\nX",
        "| `--evidence PATH` |",
        "--expectations ~/own",
        "--device-map <FILE>",
    ],
)
def test_a_space_is_noticed(text: str) -> None:
    assert apart(text)


@pytest.mark.parametrize("text", ["--model X", "--evidence FILE", "--model tiny:a", "--json ./a"])
def test_a_space_in_a_docstring_is_noticed(text: str) -> None:
    assert apart(text, APART_IN_CODE)


@pytest.mark.parametrize(
    "text", ["--model=X", "`--json` prints", "--json --report=x", "--models a"]
)
def test_other_uses_are_not(text: str) -> None:
    assert not apart(text)


def test_settings_are_named_where_tox_hands_arguments_on() -> None:
    """There a space harms nobody: pytest looks for no settings beside what it takes for a test."""
    runs = [line for line in (ROOT / "tox.ini").read_text().splitlines() if "--dist" in line]
    assert len(runs) == 4
    assert all("pytest -c {tox_root}{/}pyproject.toml " in line for line in runs)


def test_the_promises_are_linked_and_name_the_tests_that_show_them() -> None:
    promises = (ROOT / "SECURITY.md").read_text()
    named = set(re.findall(r"`(harness/tests/\w+/\w+\.py)`", promises))
    assert named == {
        "harness/tests/models/test_untrusted.py",
        "harness/tests/plugin/test_import_paths.py",
    }
    assert all((ROOT / name).is_file() for name in named)
    assert "](SECURITY.md)" in (ROOT / "README.md").read_text()


LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("path", [file for file in DOCUMENTS if file.suffix == ".md"], ids=named)
def test_links_in_documents_lead_somewhere(path: Path) -> None:
    links = [link for link in LINK.findall(path.read_text()) if "://" not in link]
    missing = [link for link in links if not (path.parent / link).exists()]
    assert not missing


def test_the_front_page_fits_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
