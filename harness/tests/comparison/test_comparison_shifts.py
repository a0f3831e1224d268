"""Shifts between two samples: right numbers, honest errors, and what cannot be judged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.harness.checking import statistics
from assay.harness.comparison import shifts
from assay.harness.comparison.shifts import between, of_margins

KINDS = ("share", "median", "mean", "ratio of means", "rank correlation")


def random(seed):
    return np.random.default_rng(seed)


def sample(kind, seed, n=256, moved=0.0):
    """Draws of a finding whose statistic is higher for a larger ``moved``; skewed where it can."""
    draw = random(seed)
    skewed = draw.lognormal(0, 0.7, n)
    if kind == "share":
        return (draw.random(n) < 0.7 + moved).astype(float)
    if kind == "ratio of means":
        return np.stack([skewed * (1 + moved), draw.lognormal(0, 0.3, n)], axis=1)
    if kind == "rank correlation":
        x = draw.normal(size=n)
        return np.stack([x, (0.3 + moved) * x + draw.normal(size=n)], axis=1)
    return skewed + moved


def noisy(kind, sample, seed, noise=0.3):
    """The same inputs measured again: every draw is a little different, none in a direction."""
    draw = random(seed)
    if kind == "share":
        up, down = (draw.random(len(sample)) < share for share in (0.07, 0.03))
        return np.where(sample > 0, ~down, up).astype(float)  # 0.3 × 0.07 = 0.7 × 0.03
    if sample.ndim == 1:
        return sample + noise * draw.normal(size=sample.shape)
    return sample + noise * draw.normal(size=sample.shape) * [1, 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("paired", [True, False])
def test_where_nothing_moved_one_test_in_twenty_says_so(kind, paired):
    """Of 100 comparisons; the interval leaves 0 out exactly where p is small."""
    statistic, wrong = statistics.EVERY[kind], 0
    for seed in range(100):
        one = sample(kind, 2 * seed, 96)
        if kind == "rank correlation" and paired:
            noise = 0.2 * random(seed).normal(size=(2, *one.shape))
            one, other = one + noise[0], one + noise[1]  # on one alone it would weaken it
        else:
            other = noisy(kind, one, seed) if paired else sample(kind, 2 * seed + 1, 96)
        shift = between(statistic, one, other, paired)
        low, high = shift.interval(0.05)
        assert (shift.p <= 0.05) == (not low <= 0 <= high)
        assert low <= shift.shift <= high
        wrong += shift.p <= 0.05
    assert wrong <= 12  # 5 are expected; more has a chance of 1 in 700


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("way", [1, -1])
def test_what_moved_is_found_in_its_direction(kind, paired, way):
    moved = {"share": 0.2, "rank correlation": 1.0}.get(kind, 0.5)
    low, high = sample(kind, 0), sample(kind, 0 if paired else 1, moved=moved)
    shift = between(statistics.EVERY[kind], *(low, high)[::way], paired)
    assert shift.p < 1e-3
    assert shift.shift * way > 0
    assert shift.interval(0.001)[(1 - way) // 2] * way > 0
    assert shift.paired == paired
    assert shift.draws == 256
    assert shift.size > 0.1


def test_pairing_finds_what_is_lost_among_the_draws():
    one = sample("mean", 0)
    other = one + 0.02 + 0.01 * random(1).normal(size=256)
    assert between(statistics.mean, one, other, True).p < 1e-10
    assert between(statistics.mean, one, other, False).p > 0.5


def test_all_draws_moved_alike_is_certain():
    shift = between(statistics.mean, np.zeros(8), np.ones(8), True)
    assert (shift.shift, shift.p, shift.interval(1e-9)) == (1.0, 0.0, (1.0, 1.0))
    assert shift.size == math.inf


def test_one_example_of_twelve_is_no_drift():
    """Exact agreement is cut off at 16 decades: a single one that is lost says little."""
    one = np.full(12, 16.0)
    other = one.copy()
    other[3] = 2.0
    assert of_margins(one, other, True).p > 0.3


def test_draws_without_a_value_are_left_out_of_both():
    one, other = sample("mean", 0, 50), sample("mean", 0, 50, moved=1.0)
    one[3], other[7] = math.nan, math.inf
    shift = between(statistics.mean, one, other, True)
    assert (shift.draws, shift.shift) == (48, pytest.approx(1.0))


def test_runs_of_unequal_budgets_are_paired_as_far_as_both_go():
    shift = between(statistics.mean, sample("mean", 0, 50), sample("mean", 0, 50)[:20], True)
    assert (shift.draws, shift.shift) == (20, 0.0)


def test_too_few_draws_are_not_judged():
    one = sample("mean", 0, shifts.FEWEST - 1)
    assert between(statistics.mean, one, one, True) is None


def test_a_value_that_is_no_estimate_has_moved_if_it_is_another():
    for statistic in (statistics.exact, statistics.highest):
        same = between(statistic, np.array([4.0]), np.array([4.0]), True)
        other = between(statistic, np.array([4.0]), np.array([5.0]), False)
        assert (same.p, other.p, other.shift, other.size) == (1.0, 0.0, 1.0, 0.25)
    assert between(statistics.exact, np.array([math.nan]), np.array([1.0]), True) is None
    assert between(statistics.exact, np.array([]), np.array([1.0]), True) is None
