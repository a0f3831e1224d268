"""Planted drifts: no change of names, types, outputs or defaults makes Assay quiet.

`tox -e nightly` runs all laws on five types after each drift; the gate tries a few drifts.
"""

from __future__ import annotations

import pytest

from assay.fixtures import families
from assay.harness.tests.support.drifts import DRIFTS, Inapplicable
from assay.harness.tests.support.drifts_judged import (
    CARRIED,
    LOUD,
    QUIET,
    TYPES,
    judged,
)

CLAIMS = ("C2", "C4", "C5", "C9", "G2", "G8")
"""Laws that use each argument and output of a pass."""


def applicable(name: str) -> list[str]:
    """The types that a drift changes."""
    types = []
    for model_type in TYPES:
        try:
            DRIFTS[name].change(families.tiny(model_type))
        except Inapplicable:
            continue
        types.append(model_type)
    return types


IN_THE_GATE = [*enumerate(DRIFTS)][::9]


@pytest.mark.parametrize(("number", "name"), IN_THE_GATE, ids=[*DRIFTS][::9])
def test_a_drift_is_carried_or_named(number: int, name: str) -> None:
    types = applicable(name)
    assert types, f"{name} changes no type"
    outcome = judged(types[number % len(types)], name, CLAIMS)
    assert outcome.state in (CARRIED, LOUD), outcome
    assert (outcome.state == LOUD) is bool(outcome.why)


@pytest.mark.nightly
@pytest.mark.parametrize("name", DRIFTS)
def test_after_a_drift_all_laws_are_examined_or_the_run_fails(name: str) -> None:
    outcomes = [judged(model_type, name) for model_type in applicable(name)]
    assert [outcome for outcome in outcomes if outcome.state not in (CARRIED, LOUD)] == []


def test_a_run_with_fewer_laws_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the expected capabilities, a drift that hides the head is green with fewer laws."""
    monkeypatch.setattr(
        "assay.harness.models.loading.runs.recorded.lacking", lambda subject, brake: {}
    )
    outcome = judged("llama", "head-not-given", ("C4", "G6"))
    assert outcome.state == QUIET, outcome
