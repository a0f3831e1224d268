"""The expectations that come with Assay: one entry a cause, and pages that say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import defects
from harness.expectation_files import HEADER, emit, load
from harness.expectations import Expectations

ROOT = Path(__file__).parents[2]
EXPECTED = load(ROOT / "claims" / "expectations")
DEFECTS = {each.path.name: each for each in defects.read(ROOT / "docs" / "defects")}
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "by-design.md").read_text().splitlines()
    if line.startswith("| ")
]

each_file = pytest.mark.parametrize("expected", EXPECTED.values(), ids=EXPECTED)


def model_type(expected: Expectations) -> str:
    return expected.model.rpartition(":")[2]


def numbers(type_: str) -> set[str]:
    """The claims that docs/by-design.md names for a type."""
    return {
        number
        for names, seen, *_ in ROWS
        if re.search(rf"(?<![\w.-]){re.escape(type_)}(?![\w.-])", names)
        for number in re.findall(r"\b[A-F]\d+\b", seen)
    }


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
def test_what_is_by_design_stands_in_the_page_of_it(expected):
    for (claim, _), entry in expected.entries.items():
        by_design = entry.reason.startswith("by design: ")
        assert by_design == ("docs/by-design.md" in entry.reason), entry.where
        if by_design:
            assert claim in numbers(model_type(expected)), entry.where


def test_a_page_s_row_is_of_whole_names_only():
    assert numbers("xlm") == {"A7"}
    assert numbers("lm") == set()
    assert numbers("qwen4_exp") == numbers("qwen4_exp_text") != set()
