"""How often a finding whose effect lies at its bound is decided, which is always wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from assay.harness.checking.bounds import Bound
from assay.harness.checking.plans import ERROR, Plan
from assay.harness.checking.samples import Sample
from assay.harness.checking.statistics import mean, rank_correlation, ratio_of_means, share
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
    """The interval of a median lies between order statistics: how many are below decides."""
    sample = Sample()
    sample.add(effect=np.arange(draws) - hits + 0.5)
    return sample


@pytest.mark.parametrize(
    ("bound", "p", "how_often"),
    [
        (Bound(share, at_least=0.5), 0.5, hits_of),
        (Bound(share, at_least=0.95), 0.95, hits_of),
        (ABOVE, 0.5, below_zero),
    ],
)
def test_a_finding_at_its_bound_is_decided_in_one_of_twenty_at_most(bound, p, how_often):
    plan = Plan(bound, None, None, 64)
    assert outcomes(plan, p, how_often, len(plan.looks(256))) <= ERROR
    if p == 0.5:  # looking again and again at one confidence errs more often
        assert outcomes(plan, p, how_often, looks=1) > 1.5 * ERROR


# Bootstraps, by simulation.

SIMULATED = 200


def skewed(rng, draws, columns):
    """Lognormal numbers of mean 1."""
    return rng.lognormal(-(1.5**2) / 2, 1.5, (draws, columns)).squeeze()


def correlated(rng, draws, columns):
    """Normal pairs, whose rank correlation is 6 / pi arcsin(rho / 2): here 0.3."""
    rho = 2 * np.sin(np.pi * 0.3 / 6)
    return rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], draws)


def decided(bound: Bound, drawn: Callable, columns: int) -> float:
    """The share of samples of which any look at up to 256 draws decides."""
    plan, rng, wrong = Plan(bound, None, None, 64), np.random.default_rng(0), 0
    sizes = plan.looks(256)
    for _ in range(SIMULATED):
        sample, values = Sample(), drawn(rng, sizes[-1], columns)
        looks = []
        for before, size in pairwise([0, *sizes]):
            sample.add(effect=values[before:size])
            looks.append(plan.effect(sample, len(sizes)).verdict)
        wrong += any(verdict is not Verdict.INCONCLUSIVE for verdict in looks)
    return wrong / SIMULATED


@pytest.mark.nightly
def test_a_bootstrapped_statistic_at_its_bound_is_decided_in_one_of_twenty_at_most():
    assert decided(Bound(ratio_of_means, at_least=1.0), skewed, 2) <= ERROR
    assert decided(Bound(rank_correlation, above=0.3), correlated, 2) <= ERROR


@pytest.mark.nightly
@pytest.mark.parametrize(("statistic", "columns"), [(mean, 1), (ratio_of_means, 2)])
def test_a_bootstrap_of_skewed_draws_needs_its_caution(statistic, columns):
    careless = replace(statistic, caution=1.0)
    assert decided(Bound(careless, at_least=1.0), skewed, columns) > 1.5 * ERROR
