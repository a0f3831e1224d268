"""Passages: what the documents say where the claims' sources point."""

from __future__ import annotations

import re

import pytest

from assay.harness.cli.main import cases_of_claims
from assay.harness.results import bibliography, passages

NO_PLACE = re.compile(r"beyond|needed by|counterexample|injective|, and beyond|^arXiv")
"""Sources that name no place in a document: what they claim is said in none."""


def test_every_source_with_a_place_in_a_document_has_its_passage() -> None:
    sources = {case.claim.source for case in cases_of_claims()}
    assert len(sources) > 70
    without = [s for s in sources if not passages.passages(s) and not NO_PLACE.search(s)]
    assert not without


def test_every_passage_is_named_by_a_source() -> None:
    named = [each for case in cases_of_claims() for each in passages.passages(case.claim.source)]
    said = {(each.key, each.says) for each in named}
    assert not [each for each in passages.PASSAGES if (each.key, each.says) not in said]
    assert {each.key for each in passages.PASSAGES} <= {work.key for work in bibliography.WORKS}


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("000, question, point 1", ["question, point 1"]),
        ("004, answer 2; 000, solution", ["answer 2", "solution"]),
        ("000, solution, last paragraph; 001", ["solution, last paragraph"]),
        ("beyond the documents", []),
    ],
)
def test_a_source_has_the_narrowest_places(source: str, places: list[str]) -> None:
    assert [each.place for each in passages.passages(source)] == places
