"""Statistics of a sample with confidence intervals, all of them scipy's.

A sample is an array of independent draws, [n] or [n, columns]; an interval is a pair (low, high)
at a given confidence, (-inf, inf) where the sample is too small to have one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from harness.arrays import Array

Pair = tuple[float, float]

RESAMPLES = 2000
"""Of a bootstrap: the ends of an interval then stand still to a few hundredths of its width."""

NOWHERE: Pair = (-math.inf, math.inf)


@dataclass(frozen=True)
class Statistic:
    """A number that a sample has, by name, and the interval in which the population's lies.

    ``caution`` is the share of the allowed error that is asked of the interval: a bootstrap of a
    hundred draws, of a skewed distribution above all, errs more often than it says (simulated in
    ``harness/tests/test_findings.py``).  ``fewest`` draws are worth a look.
    """

    name: str
    of: Callable[[Array], float]
    interval: Callable[[Array, float], Pair]
    caution: float = 1.0
    fewest: int = 64

    def __call__(self, sample: Array) -> float:
        """The statistic of ``sample``."""
        return float(self.of(sample))


def _wilson(sample: Array, confidence: float) -> Pair:
    hits, n = int(np.count_nonzero(sample)), len(sample)
    found = stats.binomtest(hits, n).proportion_ci(confidence, method="wilson")
    return float(found.low), float(found.high)


def _of_median(sample: Array, confidence: float) -> Pair:
    # Between order statistics: exact for any distribution, and nothing is resampled.
    found = stats.quantile_test(sample, q=0.0, p=0.5).confidence_interval(confidence)
    low = -math.inf if math.isnan(found.low) else float(found.low)
    return low, math.inf if math.isnan(found.high) else float(found.high)


def _bootstrap(of: Callable[..., Array]) -> Callable[[Array, float], Pair]:
    """Bias-corrected and accelerated bootstrap over draws; columns stay together (paired)."""

    def interval(sample: Array, confidence: float) -> Pair:
        if len(sample) < 2:
            return NOWHERE
        columns = tuple(sample.T) if sample.ndim == 2 else (sample,)
        if all(np.ptp(column) == 0.0 for column in columns):
            value = float(of(*columns, axis=-1))
            return value, value
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a degenerate resample, which NaN tells of
            found = stats.bootstrap(
                columns,
                of,
                n_resamples=RESAMPLES,
                confidence_level=confidence,
                method="BCa",
                paired=True,
                vectorized=True,
                rng=np.random.default_rng(0),  # the interval is a function of the sample
            ).confidence_interval
        if not (math.isfinite(found.low) and math.isfinite(found.high)):
            return NOWHERE
        return float(found.low), float(found.high)

    return interval


def _mean(x: Array, axis: int = -1) -> Array:
    return np.mean(x, axis=axis)


def _ratio(x: Array, y: Array, axis: int = -1) -> Array:
    return np.mean(x, axis=axis) / np.mean(y, axis=axis)


def _ratio_of_ratios(a: Array, b: Array, c: Array, d: Array, axis: int = -1) -> Array:
    return _ratio(a, b, axis=axis) / _ratio(c, d, axis=axis)


def _rank_correlation(x: Array, y: Array, axis: int = -1) -> Array:
    """Spearman's, over the last axis of arrays of any number of dimensions."""
    x, y = (stats.rankdata(each, axis=axis) for each in (x, y))
    x, y = (each - each.mean(axis=axis, keepdims=True) for each in (x, y))
    scale = np.sqrt((x**2).sum(axis=axis) * (y**2).sum(axis=axis))
    return (x * y).sum(axis=axis) / scale


share = Statistic("share", lambda sample: np.count_nonzero(sample) / len(sample), _wilson)
"""Of draws that are true: Wilson's interval."""

median = Statistic("median", lambda sample: float(np.median(sample)), _of_median)
"""With an interval between order statistics, which assumes nothing of the distribution."""

mean = Statistic(
    "mean", lambda sample: float(np.mean(sample)), _bootstrap(_mean), caution=0.5, fewest=128
)
"""Of [n], or of paired differences: BCa bootstrap."""

ratio_of_means = Statistic(
    "ratio of means",
    lambda sample: float(_ratio(*sample.T)),
    _bootstrap(_ratio),
    caution=0.2,
    fewest=128,
)
"""Of the two columns of [n, 2], paired: BCa bootstrap."""

ratio_of_ratios = Statistic(
    "ratio of ratios of means",
    lambda sample: float(_ratio_of_ratios(*sample.T)),
    _bootstrap(_ratio_of_ratios),
    caution=0.2,
    fewest=128,
)
"""Of the first two columns of [n, 4] over the last two, paired: BCa bootstrap."""

rank_correlation = Statistic(
    "rank correlation",
    lambda sample: float(_rank_correlation(*sample.T)),
    _bootstrap(_rank_correlation),
    caution=0.5,
    fewest=128,
)
"""Spearman's, of the two columns of [n, 2]: BCa bootstrap."""


def _alone(sample: Array, confidence: float) -> Pair:
    value = float(sample[-1])
    return value, value


exact = Statistic("value", lambda sample: float(sample[-1]), _alone)
"""Of one number that is no estimate, such as a count over the whole vocabulary."""

highest = Statistic(
    "highest",
    lambda sample: float(np.max(sample)),
    lambda sample, confidence: (float(np.max(sample)), float(np.max(sample))),
)
"""Of all draws, for a control that none of them may pass: no interval."""
