"""Statistics in closed form, and what a sample that has none is given."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy import stats

from assay.harness.checking import statistics
from assay.harness.checking.statistics import (
    NOWHERE,
    censored_median,
    exact,
    highest,
    mean,
    median,
    rank_correlation,
    ratio_of_means,
    share,
)


def numbers(*shape: int, seed: int = 0):
    return np.random.default_rng(seed).normal(size=shape)


def positive(*shape: int, seed: int = 0):
    return 1 + np.random.default_rng(seed).random(shape)


# Values.


def test_the_share_the_median_and_the_mean_of_a_few_draws():
    assert share(np.array([True, False, True, True])) == 0.75
    sample = np.array([1.0, 2.0, 6.0])
    assert (median(sample), mean(sample)) == (2.0, 3.0)


def test_the_ratio_is_of_the_first_column_s_mean_to_the_second_s():
    assert ratio_of_means(np.array([[1.0, 2.0], [5.0, 2.0], [3.0, 5.0]])) == 1.0
    assert ratio_of_means(np.array([[2.0, 1.0], [2.0, 7.0]])) == 0.5


def test_a_rank_correlation_is_spearman_s_with_ties():
    sample = numbers(40, 2).round(1)
    sample[:, 1] += sample[:, 0]
    theirs = stats.spearmanr(sample[:, 0], sample[:, 1]).statistic
    assert rank_correlation(sample) == pytest.approx(theirs, rel=1e-12)
    assert rank_correlation(sample * [1, -2]) == pytest.approx(-theirs, rel=1e-12)


def test_one_number_is_the_last_and_the_highest_is_of_all():
    sample = np.array([1.0, 5.0, 3.0])
    assert (exact(sample), exact.interval(sample, 0.95)) == (3.0, (3.0, 3.0))
    assert (highest(sample), highest.interval(sample, 0.95)) == (5.0, (5.0, 5.0))


@pytest.mark.parametrize(
    ("column", "is_its_value"), [(0.0, math.isnan), (1.0, lambda value: value == math.inf)]
)
def test_a_ratio_to_nothing_is_no_number_and_warns_of_nothing(column, is_its_value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_its_value(ratio_of_means(np.array([[column, 0.0]] * 3)))
        assert ratio_of_means.interval(np.array([[column, 0.0]] * 3), 0.95) == NOWHERE


# Intervals.


@pytest.mark.parametrize("confidence", [0.9, 0.99])
@pytest.mark.parametrize("hits", [1, 13, 19])
def test_a_share_lies_where_clopper_and_pearson_say(hits, confidence):
    low, high = share.interval(np.arange(20) < hits, confidence)
    rest = (1 - confidence) / 2
    assert low == pytest.approx(stats.beta.ppf(rest, hits, 21 - hits), rel=1e-6)
    assert high == pytest.approx(stats.beta.ppf(1 - rest, hits + 1, 20 - hits), rel=1e-6)


def test_a_share_of_none_or_all_has_one_end_at_its_value():
    none, every = (share.interval(np.full(20, hit), 0.95) for hit in (False, True))
    assert none == (0.0, pytest.approx(1 - 0.025 ** (1 / 20)))
    assert every == (pytest.approx(0.025 ** (1 / 20)), 1.0)


@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_a_median_lies_between_the_nearest_draws_that_enclose_it_so_often(confidence):
    n, sample = 30, np.sort(numbers(30))
    low, high = median.interval(sample, confidence)
    below = int(np.searchsorted(sample, low))
    assert sample[below] == low
    assert sample[n - 1 - below] == high
    # Fewer than `below` + 1 of n fair coins, on either side.
    assert stats.binom.cdf(below, n, 0.5) <= (1 - confidence) / 2
    assert stats.binom.cdf(below + 1, n, 0.5) > (1 - confidence) / 2


def test_a_median_of_few_draws_may_lie_anywhere():
    assert median.interval(numbers(3), 0.99) == NOWHERE


@pytest.mark.parametrize(
    ("statistic", "sample"),
    [
        (mean, numbers(80)),
        (ratio_of_means, positive(80, 2)),
        (rank_correlation, numbers(80, 2).cumsum(1)),
    ],
)
def test_bootstraps_are_scipy_s_and_the_same_each_time(statistic, sample):
    def of(x, y=None):
        if statistic is mean:
            return x.mean()
        return x.mean() / y.mean() if statistic is ratio_of_means else stats.spearmanr(x, y)[0]

    theirs = stats.bootstrap(
        tuple(sample.T) if sample.ndim == 2 else (sample,),
        of,
        n_resamples=statistics.RESAMPLES,
        confidence_level=0.9,
        vectorized=False,
        paired=True,
        rng=np.random.default_rng(0),
    ).confidence_interval
    low, high = statistic.interval(sample, 0.9)
    assert (low, high) == pytest.approx(tuple(theirs), rel=1e-9)
    assert low < statistic(sample) < high
    assert statistic.interval(sample, 0.9) == (low, high)


def test_columns_are_resampled_together():
    """Draw by draw the second column is twice the first: there is nothing to doubt."""
    sample = positive(50, 1) * [1.0, 2.0] + numbers(50, 1, seed=1) * [1e-9, 0]
    low, high = ratio_of_means.interval(sample, 0.95)
    assert 0.5 - 1e-8 < low <= high < 0.5 + 1e-8


def test_numbers_in_memory_are_few_whatever_the_sample(monkeypatch):
    sample = numbers(300)
    whole = mean.interval(sample, 0.95)
    monkeypatch.setattr(statistics, "AT_ONCE", 100)
    assert mean.interval(sample, 0.95) == pytest.approx(whole)


# Samples that have no interval, or no width.


def test_one_draw_has_no_interval_and_two_have():
    assert mean.interval(np.array([1.0]), 0.95) == NOWHERE
    low, high = mean.interval(np.array([1.0, 2.0]), 0.95)
    assert 1.0 <= low < high <= 2.0


def test_a_bootstrap_of_draws_that_are_all_the_same_decides_nothing():
    """Its resamples are all alike, too: an interval of no width would be sure of any mean."""
    assert mean.interval(np.full(20, 3.0), 0.95) == NOWHERE
    assert ratio_of_means.interval(np.full((20, 2), [3.0, 4.0]), 0.95) == NOWHERE


def test_one_column_that_stands_still_does_not_make_the_other():
    low, high = ratio_of_means.interval(np.stack([positive(50), np.full(50, 2.0)], 1), 0.95)
    assert 0.5 < low < high < 1.0


def test_draws_whose_columns_have_no_ranks_have_no_correlation():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rank_correlation.interval(np.full((20, 2), [3.0, 4.0]), 0.95) == NOWHERE
        still = np.stack([numbers(20), np.full(20, 2.0)], axis=1)
        assert rank_correlation.interval(still, 0.95) == NOWHERE


def test_a_ratio_that_may_be_to_nothing_has_no_interval():
    """Two draws of thirty have something below the line; an eighth of the resamples has not."""
    sample = np.stack([positive(30), np.arange(30) < 2], axis=1)
    assert math.isfinite(ratio_of_means(sample))
    assert ratio_of_means.interval(sample, 0.95) == NOWHERE


def test_a_median_of_times_that_were_cut_off_is_between_their_limits():
    times = np.sort(np.random.default_rng(0).random(30))
    known = np.stack([times, times], axis=1)
    low, high = censored_median.interval(known, 0.95)
    assert (low, high) == median.interval(times, 0.95)
    cut = np.stack([times.clip(max=0.8), np.where(times > 0.8, 1e9, times)], axis=1)
    assert censored_median.interval(cut, 0.95) == (low, high)
    all_cut = np.stack([np.full(30, 120.0), np.full(30, 1e9)], axis=1)
    assert censored_median.interval(all_cut, 0.95) == (120.0, 1e9)
