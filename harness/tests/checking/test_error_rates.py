"""How often a finding whose effect lies at its bound is decided, which is always wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from assay.harness.checking.bounds import Bound
from assay.harness.checking.plans import ERROR, Plan
from assay.harness.checking.samples import Sample
from assay.harness.checking.statistics import (
    share,
)
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.declared import ABOVE, hits_of


def outcomes(plan: Plan, p: float, how_often: Callable[[int, int], Sample], looks: int) -> float:
    """The probability that any look decides, over all numbers of hits of probability ``p``.

    ``how_often(hits, draws)`` is a sample, of whose verdict only the number of hits is decisive.
    """
    undecided, before, wrong = np.ones(1), 0, 0.0
    for size in plan.looks(256):
        more = np.arange(size - before + 1)
        undecided, before = np.convolve(undecided, stats.binom.pmf(more, more[-1], p)), size
        for hits in np.flatnonzero(undecided > 1e-9):
            if plan.effect(how_often(int(hits), size), looks).verdict is not Verdict.INCONCLUSIVE:
                wrong += undecided[hits]
                undecided[hits] = 0.0
    return wrong


def below_zero(hits: int, draws: int) -> Sample:
    sample = Sample()
    sample.add(effect=np.arange(draws) - hits + 0.5)
    return sample


@pytest.mark.parametrize("fewest", [None, 128, 1024])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.95, 0.99])
def test_a_share_at_its_bound_is_decided_in_one_of_twenty_at_most(p, fewest):
    plan = Plan(Bound(share, at_least=p), None, fewest, 64)
    assert outcomes(plan, p, hits_of, len(plan.looks(256))) <= ERROR


@pytest.mark.parametrize("fewest", [None, 100])
def test_a_median_at_its_bound_is_decided_in_one_of_twenty_at_most(fewest):
    """Its interval lies between order statistics: how many draws are below decides."""
    plan = Plan(ABOVE, None, fewest, 64)
    assert outcomes(plan, 0.5, below_zero, len(plan.looks(256))) <= ERROR


def test_looking_again_and_again_at_one_confidence_errs_more_often():
    assert outcomes(Plan(ABOVE, None, None, 64), 0.5, below_zero, looks=1) > 1.5 * ERROR
    at_half = Plan(Bound(share, at_least=0.5), None, None, 64)
    assert outcomes(at_half, 0.5, hits_of, looks=1) > 1.5 * ERROR


def test_a_median_s_verdict_depends_on_how_many_draws_are_below_the_bound():
    plan, draws = Plan(ABOVE, None, None, 64), np.random.default_rng(0)
    for _ in range(20):
        sample = Sample()
        sample.add(effect=draws.lognormal(size=64) - draws.choice([0.7, 1.0, 1.4]))
        same = below_zero(int((sample.values("effect") < 0).sum()), 64)
        assert plan.effect(sample, 3).verdict is plan.effect(same, 3).verdict
