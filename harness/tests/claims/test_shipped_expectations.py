"""The expectations that come with Assay: one entry a cause, and pages that say the same."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from assay.harness.checking import cases
from assay.harness.cli import main as harness_main
from assay.harness.models import capabilities
from assay.harness.models.capabilities import designs
from assay.harness.results import defects
from assay.harness.results.expectation_files import HEADER, emit, load
from assay.harness.results.expectations import Expectations
from assay.harness.results.verdicts import Kind, Verdict
from assay.harness.tests.support.sessions import ROOT

EXPECTED = load(ROOT / "claims" / "expectations")
DEFECTS = {each.path.name: each for each in defects.read(ROOT / "docs" / "defects")}
CASES = cases.collect(harness_main.rooms().claims)
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "by-design.md").read_text().splitlines()
    if line.startswith("| ")
]


def model_type(expected: Expectations) -> str:
    kind, _, name = expected.model.rpartition(":")
    if (kind or name).rstrip("*") in ("reference", "untrained", "geometry"):
        return "bert" if name == "masked" else "gpt2"
    return name


def test_claims_of_one_cause_share_an_entry():
    for expected in EXPECTED.values():
        text = expected.path.read_text()
        assert text.startswith("# "), expected.path
        written = emit(expected.model, expected.entries, expected.dtype, expected.lacks)
        assert text.partition("\n")[2] == written.removeprefix(HEADER), expected.path


def test_a_law_is_refuted_for_a_defect_only_which_is_of_its_types_and_claims():
    for expected in EXPECTED.values():
        for (claim, name), entry in expected.entries.items():
            scripts = re.findall(r"docs/defects/(\w+\.py)", entry.reason)
            if entry.verdict is Verdict.REFUTED and is_law(claim, name):
                assert scripts, (entry.where, claim, name)
            for script in scripts:
                defect, kind = DEFECTS[script], model_type(expected)
                assert any(fnmatchcase(kind, each) for each in defect.types), (entry.where, script)
                assert breaks(defect, claim, name or ""), (entry.where, script)


def breaks(defect: defects.Defect, claim: str, name: str) -> bool:
    """Whether a script is about the claim of this number and name, or a variant of it."""
    return any(
        claim == number and (not variant or name.endswith(f" [{variant}]"))
        for number, variant in defect.claims
    )


def is_law(claim: str, name: str | None) -> bool:
    """Whether an entry is about a law: D1 is a finding, and some numbers are of both."""
    kinds = {
        case.claim.kind for case in CASES if case.claim.id == claim and name in (None, case.name)
    }
    assert len(kinds) == 1, (claim, name)
    return kinds == {Kind.LAW}


def test_every_design_stands_in_the_page_of_them():
    for design in designs.DESIGNS:
        for name in design.lacks:
            assert name in capabilities.names()
            rows = [row for row in ROWS if f"`{name}`" in row[2]]
            matches = [types for types, *_ in rows if named(types, design.types)]
            assert matches, (design.types, name)


def named(text: str, types: tuple[str, ...]) -> bool:
    """Whether one of ``types`` is named in ``text`` by its whole name."""
    return any(re.search(rf"(?<![\w.-]){re.escape(each)}(?![\w.-])", text) for each in types)


def test_a_name_is_a_whole_one():
    assert named("xlm and others", ("xlm",))
    assert not named("xlm-roberta, xlmx", ("xlm", "lm"))
