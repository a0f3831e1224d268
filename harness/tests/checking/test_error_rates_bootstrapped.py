"""How often a bootstrapped statistic at its bound is decided: many samples at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from assay.harness.checking import statistics
from assay.harness.checking.bounds import Bound
from assay.harness.checking.plans import ERROR, Plan
from assay.harness.checking.samples import Sample
from assay.harness.checking.statistics import (
    RESAMPLES,
    Statistic,
    mean,
    rank_correlation,
    ratio_of_means,
)
from assay.harness.results.arrays import Array
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.declared import hits_of

pytestmark = pytest.mark.nightly


def normal(rng, shape):
    return rng.normal(1.0, 1.0, shape)


def exponential(rng, shape):
    return rng.exponential(1.0, shape)


def lognormal(sigma):
    """Lognormal numbers of mean 1."""
    return lambda rng, shape: rng.lognormal(-(sigma**2) / 2, sigma, shape)


@dataclass(frozen=True)
class Null:
    """Columns of independent draws of mean 1 each; so is ``of``, the statistic, of their means."""

    statistic: Statistic
    of: Callable[..., Array]
    columns: tuple[Callable[..., Array], ...]

    @property
    def plan(self) -> Plan:
        return Plan(Bound(self.statistic, at_least=1.0), None, None, 64)


A_MEAN = (mean, lambda x: x)
A_RATIO = (ratio_of_means, lambda x, y: x / y)

NULLS = {
    "mean, normal": Null(*A_MEAN, (normal,)),
    "mean, exponential": Null(*A_MEAN, (exponential,)),
    "mean, lognormal 1": Null(*A_MEAN, (lognormal(1.0),)),
    "ratio, exponential": Null(*A_RATIO, (exponential,) * 2),
    "ratio, lognormal 1.5": Null(*A_RATIO, (lognormal(1.5),) * 2),
    "ratio, lognormal 1.5 and 0.5": Null(*A_RATIO, (lognormal(1.5), lognormal(0.5))),
}

SIMULATED, PAIRED = 2000, 120
"""Samples of each null; rank correlations are resampled one sample at a time."""


@cache
def times_drawn(draws: int) -> Array:
    """How often each draw is in each of the bootstrap's resamples: [resamples, draws].

    They are the same for every sample of a size, which `intervals` lives on.
    """
    chosen = np.random.default_rng(0).integers(0, draws, size=(RESAMPLES, draws))
    return np.stack([np.bincount(row, minlength=draws) for row in chosen]).astype(float)


def intervals(columns: list[Array], of: Callable[..., Array], confidence: float) -> Array:
    """BCa intervals [2, samples] of many samples, of columns [draws, samples] each."""
    draws, samples = columns[0].shape
    resampled = np.sort(of(*(times_drawn(draws) @ c / draws for c in columns)), axis=0)
    value = of(*(c.mean(0) for c in columns))
    less_one = of(*((c.sum(0) - c) / (draws - 1) for c in columns))
    u = less_one.mean(0) - less_one
    acceleration = (u**3).sum(0) / (u**2).sum(0) ** 1.5 / 6
    bias = ndtri(((resampled < value).mean(0) + (resampled <= value).mean(0)) / 2)
    ends = []
    for z in bias + ndtri((1 - confidence) / 2) * np.array([[1], [-1]]):
        place = ndtr(bias + z / (1 - acceleration * z)) * (RESAMPLES - 1)
        below = np.floor(place).astype(int).clip(0, RESAMPLES - 2)
        low, high = (resampled[below + more, np.arange(samples)] for more in (0, 1))
        ends.append(low + (place - below) * (high - low))
    return np.stack(ends)


def confidence_of(plan: Plan, looks: int) -> float:
    """The confidence at which a look asks for its interval."""
    confidences: list[float] = []

    def interval(sample: Array, confidence: float) -> tuple[float, float]:
        confidences.append(confidence)
        return 0.0, 0.0

    watched = replace(plan.bound.statistic, compute=len, interval=interval)
    replace(plan, bound=replace(plan.bound, statistic=watched)).effect(hits_of(1, 2), looks)
    return confidences[0]


def simulated(null: Null, looks: int | None = None, caution: float | None = None) -> float:
    """The share of samples on whose statistic at its bound any of the looks at 256 draws decides.

    Each is at the confidence for ``looks`` (default: so many as there are) and ``caution``.
    """
    plan = null.plan
    if caution is not None:
        careless = replace(null.statistic, caution=caution)
        plan = replace(plan, bound=replace(plan.bound, statistic=careless))
    rng, sizes = np.random.default_rng(0), plan.looks(256)
    columns = [draw(rng, (sizes[-1], SIMULATED)) for draw in null.columns]
    confidence = confidence_of(plan, looks or len(sizes))
    wrong = np.zeros(SIMULATED, dtype=bool)
    for size in sizes:
        low, high = intervals([c[:size] for c in columns], null.of, confidence)
        wrong |= (low > 1.0) | (high < 1.0)
    return float(wrong.mean())


@pytest.mark.parametrize("name", NULLS)
def test_many_bootstraps_at_once_are_scipy_s_one_by_one(name):
    null, rng = NULLS[name], np.random.default_rng(1)
    columns = [draw(rng, (128, 3)) for draw in null.columns]
    fast = intervals(columns, null.of, 0.99)
    for sample in range(3):
        one = np.stack([c[:, sample] for c in columns], axis=1)
        slow = null.statistic.interval(one if len(columns) > 1 else one[:, 0], 0.99)
        assert fast[:, sample] == pytest.approx(slow, rel=1e-9)


@pytest.mark.parametrize("name", NULLS)
def test_a_bootstrapped_statistic_at_its_bound_is_decided_in_one_of_twenty_at_most(name):
    assert simulated(NULLS[name]) <= ERROR


@pytest.mark.parametrize("name", NULLS)
def test_the_simulation_tells_when_looks_are_not_corrected(name):
    assert simulated(NULLS[name], looks=1, caution=1.0) > 1.5 * ERROR


def test_a_bootstrap_of_a_skewed_ratio_needs_its_caution():
    assert simulated(NULLS["ratio, lognormal 1.5"], caution=1.0) > 1.5 * ERROR


@pytest.mark.parametrize("correlation", [0.0, 0.3])
def test_a_rank_correlation_at_its_bound_is_decided_in_one_of_twenty_at_most(correlation):
    """Of normal pairs, whose rank correlation is 6 / pi arcsin(rho / 2)."""
    plan = Plan(Bound(rank_correlation, above=correlation), None, None, 64)
    rho, rng, wrong = 2 * math.sin(math.pi * correlation / 6), np.random.default_rng(0), 0
    for _ in range(PAIRED):
        sample, sizes = Sample(), plan.looks(256)
        pairs = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], sizes[-1])
        looks = []
        for before, size in pairwise([0, *sizes]):
            sample.add(effect=pairs[before:size])
            looks.append(plan.effect(sample, len(sizes)).verdict)
        wrong += any(verdict is not Verdict.INCONCLUSIVE for verdict in looks)
    assert wrong <= ERROR * PAIRED


def test_counted_ranks_are_sorted_ranks():
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 20, size=(2, 3, 4, 50))
    slow, fast = statistics._rank_correlation, statistics._rank_correlation_of_codes
    assert np.allclose(fast(*columns), slow(*columns), rtol=1e-12)
    assert not np.allclose(fast(*columns), slow(columns[0], columns[1][..., ::-1]))


def test_a_rank_correlation_s_interval_moves_with_nothing_but_the_ranks():
    pairs = np.random.default_rng(0).normal(size=(100, 2)).round(1)
    one = rank_correlation.interval(pairs, 0.95)
    assert rank_correlation.interval(np.exp(pairs), 0.95) == one
    assert rank_correlation.interval(-pairs[:, ::-1], 0.95) == pytest.approx(one)
    assert rank_correlation.interval(pairs * [1, -1], 0.95)[0] < 0 < one[1]
