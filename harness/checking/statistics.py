"""Statistics of a sample with confidence intervals, all of them scipy's.

A sample is an array of independent draws, [n] or [n, columns]; an interval is a pair (low, high)
at one confidence, (-inf, inf) where the sample is too small.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy  # its modules are imported when used: no law needs them

from assay.harness.checking import model_statistics
from assay.harness.checking.bounded import mean_interval
from assay.harness.checking.model_statistics import NOWHERE as NOWHERE
from assay.harness.checking.model_statistics import Pair as Pair
from assay.harness.results.arrays import Array

RESAMPLES = 2000
"""Of a bootstrap: the ends of an interval then vary by a few hundredths of its width."""

AT_ONCE = 1 << 17
"""Numbers of resamples in memory together: they fit in the processor's cache, and 8192 draws do
not fill gigabytes."""


@dataclass(frozen=True)
class Statistic:
    """A statistic of a sample, by name, and its confidence interval for the population's value.

    ``caution`` is the share of the allowed error at which the interval is computed: a bootstrap
    of a hundred draws, above all of a skewed distribution, errs more often than nominal (simulated
    in ``harness/tests/checking/test_error_rates.py``).  ``fewest`` draws are worth a look.
    ``resampled`` says that the interval is a bootstrap's, which resolves no error below a few of
    its resamples.
    """

    name: str
    compute: Callable[[Array], float]
    interval: Callable[[Array, float], Pair]
    caution: float = 1.0
    fewest: int = 64
    resampled: bool = False

    def __call__(self, sample: Array) -> float:
        """The statistic of ``sample``; NaN or infinite where it is undefined."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(self.compute(sample))


def _of_share(sample: Array, confidence: float) -> Pair:
    # Clopper and Pearson's: Wilson's is shorter but errs in 6 % of findings near 0 and 1.
    hits, n = int(np.count_nonzero(sample)), len(sample)
    interval = scipy.stats.binomtest(hits, n).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def _of_median(sample: Array, confidence: float) -> Pair:
    # Between order statistics: exact for any distribution, and nothing is resampled.
    interval = scipy.stats.quantile_test(sample, p=0.5).confidence_interval(confidence)
    low = -math.inf if math.isnan(interval.low) else float(interval.low)
    return low, math.inf if math.isnan(interval.high) else float(interval.high)


def _bootstrap(of: Callable[..., Array], sample: Array, confidence: float) -> Pair:
    """Bias-corrected and accelerated bootstrap over draws; columns stay together (paired)."""
    if len(sample) < 2:
        return NOWHERE
    columns = tuple(sample.T) if sample.ndim == 2 else (sample,)
    if all(np.ptp(column) == 0.0 for column in columns):
        return NOWHERE  # all resamples are equal and say nothing about unseen values
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a degenerate resample, which gives NaN
        interval = scipy.stats.bootstrap(
            columns,
            of,
            n_resamples=RESAMPLES,
            confidence_level=confidence,
            method="BCa",
            paired=True,
            vectorized=True,
            batch=max(1, AT_ONCE // len(sample)),
            rng=np.random.default_rng(0),  # the interval is a function of the sample
        ).confidence_interval
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return NOWHERE
    return float(interval.low), float(interval.high)


def _mean(x: Array, axis: int = -1) -> Array:
    return np.asarray(x.mean(axis=axis))


def _ratio(x: Array, y: Array, axis: int = -1) -> Array:
    return np.asarray(x.mean(axis=axis) / y.mean(axis=axis))


def _rank_correlation(x: Array, y: Array, axis: int = -1) -> Array:
    """Spearman's, over the last axis of arrays of any number of dimensions."""
    x, y = (_direction(scipy.stats.rankdata(each, axis=-1)) for each in (x, y))
    return np.asarray(np.einsum("...i,...i->...", x, y))


def _direction(x: Array) -> Array:
    """``x`` less its mean, with length 1, over the last axis."""
    x = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


share = Statistic("share", lambda sample: np.count_nonzero(sample) / len(sample), _of_share)
"""Share of draws that are true: the exact binomial interval."""

median = Statistic("median", lambda sample: float(np.median(sample)), _of_median)
"""With an interval between order statistics, which assumes nothing about the distribution."""

mean = Statistic(
    "mean",
    lambda sample: float(np.mean(sample)),
    partial(_bootstrap, _mean),
    caution=0.5,
    fewest=128,
    resampled=True,
)
"""Of [n], or of paired differences: BCa bootstrap."""

ratio_of_means = Statistic(
    "ratio of means",
    lambda sample: float(_ratio(*sample.T)),
    partial(_bootstrap, _ratio),
    caution=0.1,
    fewest=128,
    resampled=True,
)
"""Of the two columns of [n, 2], paired: BCa bootstrap."""

rank_correlation = Statistic(
    "rank correlation",
    lambda sample: float(_rank_correlation(*sample.T)),
    partial(_bootstrap, _rank_correlation),
    caution=0.5,
    fewest=128,
    resampled=True,
)
"""Spearman's, of the two columns of [n, 2]: BCa bootstrap."""


def _alone(sample: Array, confidence: float) -> Pair:
    value = float(sample[-1])
    return value, value


exact = Statistic("value", lambda sample: float(sample[-1]), _alone)
"""One exact number, such as a count over the whole vocabulary."""

highest = Statistic(
    "highest",
    lambda sample: float(np.max(sample)),
    lambda sample, confidence: (float(np.max(sample)), float(np.max(sample))),
)
"""The largest of all draws, for a control that none may pass: no interval."""


def _of_limits(sample: Array, confidence: float) -> Pair:
    least, most = (_of_median(column, confidence) for column in sample.T)
    return least[0], most[1]


censored_median = Statistic(
    "censored median", lambda sample: float(np.median(sample[:, 0])), _of_limits
)
"""Of numbers with two limits each, [n, 2], such as times that were cut off: between order
statistics of the lower limits and of the upper ones, valid wherever the numbers lie in between."""

bounded_mean = Statistic("bounded mean", mean.compute, mean_interval)
"""Of draws in [0, 1]: an interval that is valid at every size (`mean_interval`)."""

bounded_change = Statistic("bounded change", mean.compute, partial(mean_interval, low=-1.0))
"""The same of paired differences, in [-1, 1]."""

model_mean = Statistic(
    "model mean",
    model_statistics.mean_of_models,
    partial(model_statistics.mean_interval_of_models, low=0.0, high=1.0),
    caution=0.5,
)
"""Of [n, 2], values in [0, 1] and the numbers of their models: over models and prompts."""

model_change = Statistic(
    "model change",
    model_statistics.mean_of_models,
    partial(model_statistics.mean_interval_of_models, low=-1.0, high=1.0),
    caution=0.5,
)
"""The same of paired differences, in [-1, 1]."""

model_difference = Statistic(
    "difference of models",
    model_statistics.difference_of_models,
    model_statistics.difference_interval,
    caution=0.5,
)
"""Of [n, 3], values in [0, 1], sides 1 and 0, and models: over models and prompts."""

model_ratio = Statistic(
    "ratio of models",
    model_statistics.ratio_of_models,
    model_statistics.ratio_interval,
    caution=0.5,
)
"""Of positive values with two limits each, such as times that were cut off: [n, 4], the limit
that makes the ratio smallest, the one that makes it largest, sides 1 and 0, and models.  The ratio
of geometric means at the first limits."""


EVERY = {
    each.name: each
    for each in (
        *(share, median, mean, ratio_of_means, rank_correlation, exact, highest, censored_median),
        *(bounded_mean, bounded_change, model_mean, model_change, model_difference, model_ratio),
    )
}
"""All of them by name; no name begins with another and a space."""
