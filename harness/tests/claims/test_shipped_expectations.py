"""The expectations that come with Assay: one entry a cause, and pages that say the same."""

from __future__ import annotations

import re

import pytest

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

each_file = pytest.mark.parametrize("expected", EXPECTED.values(), ids=EXPECTED)


def model_type(expected: Expectations) -> str:
    kind, _, name = expected.model.rpartition(":")
    if (kind or name).rstrip("*") in ("reference", "untrained", "geometry"):
        return "bert" if name == "masked" else "gpt2"
    return name


@each_file
def test_claims_of_one_cause_share_an_entry(expected):
    text = expected.path.read_text()
    assert text.startswith("# ")
    written = emit(expected.model, expected.entries, expected.dtype, expected.lacks)
    assert text.partition("\n")[2] == written.removeprefix(HEADER)


@each_file
def test_a_reason_that_names_a_defect_is_of_its_types_and_claims(expected):
    for (claim, name), entry in expected.entries.items():
        for script in re.findall(r"docs/defects/(\w+\.py)", entry.reason):
            assert DEFECTS[script].fits({model_type(expected)}), script
            assert DEFECTS[script].breaks(claim, name or ""), (script, claim, name)


@each_file
def test_a_law_is_refuted_for_a_defect_only(expected):
    for (claim, name), entry in expected.entries.items():
        if entry.verdict is Verdict.REFUTED and is_law(claim, name):
            assert re.search(r"docs/defects/(\w+\.py)", entry.reason), (entry.where, claim, name)


def is_law(claim: str, name: str | None) -> bool:
    """Whether an entry is about a law: D1 is a finding, and some numbers are of both."""
    kinds = {
        case.claim.kind for case in CASES if case.claim.id == claim and name in (None, case.name)
    }
    assert len(kinds) == 1, (claim, name)
    return kinds == {Kind.LAW}


@pytest.mark.parametrize("design", designs.DESIGNS, ids=lambda design: design.types[0])
def test_a_design_stands_in_the_page_of_them(design):
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
