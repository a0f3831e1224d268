"""A finding: how draws become a verdict, with controls, and where draws have no value."""

from __future__ import annotations

import pytest
import torch

from assay.harness.checking.findings import Bound
from assay.harness.checking.statistics import (
    median,
    rank_correlation,
    ratio_of_means,
)
from assay.harness.models.capabilities import Missing
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.declared import CLEAR, WRONG, not_finite, settled, shifted

# Verdicts.


def test_an_interval_on_the_claimed_side_upholds():
    result = settled(shifted())
    assert (result.verdict, result.reason) == (Verdict.UPHELD, "")
    assert (result.id, result.subject, result.bound) == ("X1", "tiny:gpt2", 0.0)
    low, high = result.interval
    assert 0 < low < result.observed < high
    assert result.margin > 0
    assert result.details["control value"] < 0


def test_an_interval_on_the_other_side_refutes():
    result = settled(shifted(WRONG))
    assert (result.verdict, result.reason) == (Verdict.REFUTED, "")
    assert result.margin < -2


def test_an_interval_that_holds_the_bound_decides_nothing():
    result = settled(shifted(0.0))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "holds the bound after 256 draws" in result.reason
    assert -2 <= result.margin <= 0


def test_a_control_that_passes_too_leaves_a_finding_undecided():
    result = settled(shifted(control=CLEAR))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason == "the control came out the same way: the control"


def test_a_control_with_a_bound_of_its_own_must_lie_within_it():
    within = Bound(median, at_least=-1.0, at_most=1.0)
    assert settled(shifted(control=0.0), control_bound=within).verdict is Verdict.UPHELD
    beyond = settled(shifted(control=CLEAR), control_bound=within)
    assert (beyond.verdict, "the same way" in beyond.reason) == (Verdict.INCONCLUSIVE, True)


def test_a_missing_capability_is_named_before_anything_is_drawn():
    def body(draws, sample):
        raise AssertionError("was drawn")

    result = settled(body, needs=["relative-positions"])
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.reason.startswith("relative-positions: ")
    assert (result.examples, result.sample) == (0, {})


def test_a_capability_that_turns_out_to_be_missing_makes_a_finding_not_applicable():
    def body(draws, sample):
        raise Missing("no such text here")

    result = settled(body)
    assert (result.verdict, result.reason) == (Verdict.NOT_APPLICABLE, "no such text here")


# Draws without a value.


def undefined_on(numbers, name="effect"):
    """`shifted`, with NaN for ``name`` on some draws."""

    def body(draws, sample):
        series = {"effect": CLEAR + draws.normal(), "control": WRONG + draws.normal()}
        series[name][[i in numbers for i in draws]] = torch.nan
        sample.add(**series)

    return body


@pytest.mark.parametrize("name", ["effect", "control"])
@pytest.mark.parametrize("numbers", [range(0, 256, 50), range(256)])
def test_draws_without_a_value_leave_a_finding_undecided(name, numbers):
    result = settled(undefined_on(numbers, name))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason.startswith(f"the {name} is undefined (0 / 0, or not finite) on ")
    assert result.reason.endswith(f"{len(numbers)} of 256 draws")
    assert not_finite(result) == []


def test_one_draw_in_a_hundred_may_be_without_a_value():
    result = settled(undefined_on([3]), draws_of_profile=128, draws=128)
    assert result.verdict is Verdict.UPHELD
    assert result.examples == 128


@pytest.mark.parametrize("statistic", [ratio_of_means, rank_correlation])
def test_a_paired_statistic_without_a_value_is_never_shown_as_a_number(statistic):
    def body(draws, sample):
        sample.add(effect=torch.zeros(len(draws), 2), control=torch.ones(len(draws), 2))

    result = settled(body, bound=Bound(statistic, above=1.0))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert (result.observed, result.interval) == (None, None)
    assert not_finite(result) == []


@pytest.mark.parametrize("limits", [{"above": 1.0}, {"at_most": 1.0}])
def test_a_ratio_to_nothing_decides_nothing(limits):
    def body(draws, sample):
        infinite = torch.tensor([1.0, 0.0]).expand(len(draws), 2)
        sample.add(effect=infinite, control=infinite)

    result = settled(body, bound=Bound(ratio_of_means, **limits))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not_finite(result) == []
