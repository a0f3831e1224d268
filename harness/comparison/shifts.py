"""Estimates how far a number moved between two runs, by tests of scipy's.

Two samples are paired where their runs drew the same inputs: the estimate uses the differences
draw by draw, which removes the variance that the draws share.  Each p-value and its interval
belong to one test: the interval at 1 - p touches 0.

                          paired                     not paired
    share                 McNemar's exact test       Welch's t
    median                sign test of differences   normal, from the medians' own intervals
    mean, law's margin    Student's t                Welch's t
    ratio, correlation    the same of jackknife pseudo-values
    value, highest        no estimate: any difference is one
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from assay.harness.checking import statistics
from assay.harness.checking.statistics import Pair, Statistic
from assay.harness.results.arrays import Array

FEWEST = 3
"""Minimum number of draws to judge a shift."""

GROUPS = 32
"""Number of groups of draws that a jackknife leaves out, one at a time."""

Estimate = tuple[float, float, Callable[[float], Pair]]
"""A shift, its p-value, and its interval by error."""


@dataclass(frozen=True)
class Shift:
    """By how much a statistic is larger in the second run, and how surely.

    ``p`` is the p-value of no shift, and ``interval(error)`` misses the shift with this
    probability.  ``draws`` is the number of draws, each in both runs if ``paired``.  ``scale`` is
    the spread of one draw, so that ``size`` is a number of such spreads.
    """

    shift: float
    p: float
    interval: Callable[[float], Pair]
    draws: int
    paired: bool
    scale: float = 1.0

    @property
    def size(self) -> float:
        """The shift in units of ``scale``; infinite where that is 0 and something moved."""
        if self.shift == 0:
            return 0.0
        return abs(self.shift) / self.scale if self.scale > 0 else math.inf


def between(statistic: Statistic, before: Array, after: Array, paired: bool) -> Shift | None:
    """The shift of ``statistic`` from one sample to another; None if they are too small.

    Samples are [draws] or [draws, columns]; draws without a finite value in either run are left
    out.  Paired samples of unequal size are paired as far as both go.
    """
    if statistic.name in (statistics.exact.name, statistics.highest.name):
        return _fixed(statistic, before, after)
    if paired:
        n = min(len(before), len(after))
        both = _finite(before[:n]) & _finite(after[:n])
        before, after = before[:n][both], after[:n][both]
    else:
        before, after = before[_finite(before)], after[_finite(after)]
    draws = len(after)
    if min(len(before), draws) < FEWEST:
        return None
    estimate: Callable[..., Estimate] = _of_means
    if statistic is statistics.share:
        before, after = (np.asarray(each != 0, dtype=float) for each in (before, after))
        estimate = _of_changes if paired else _of_means
        scale = 0.5  # the most of a Boolean draw
    elif statistic is statistics.median:
        estimate = _of_differences if paired else _of_medians
        scale = float(stats.iqr(before, scale="normal"))
    else:
        grouped = 1.0
        if before.ndim == 2:
            grouped = math.sqrt(len(before) / min(len(before), GROUPS))
            before, after = (pseudo_values(statistic, each) for each in (before, after))
            if not (np.isfinite(before).all() and np.isfinite(after).all()):
                return None
        scale = grouped * float(np.std(before, ddof=1))  # of one draw, not of a group
    return Shift(*estimate(before, after, paired), draws, paired, scale)


def of_margins(before: Array, after: Array, paired: bool) -> Shift | None:
    """The shift of a law's margin over its examples, in decades."""
    shift = between(statistics.mean, before, after, paired)
    return None if shift is None else replace(shift, scale=1.0)


def pseudo_values(statistic: Statistic, sample: Array) -> Array:
    """Jackknife pseudo-values of groups of draws: their mean is the statistic, their spread its.

    [draws, columns] to [groups].
    """
    groups = min(len(sample), GROUPS)
    member = np.arange(len(sample)) % groups
    whole = statistic(sample)
    without = np.array([statistic(sample[member != g]) for g in range(groups)])
    return groups * whole - (groups - 1) * without


def _finite(sample: Array) -> Any:
    finite = np.isfinite(sample)
    return finite.all(axis=1) if sample.ndim == 2 else finite


def _fixed(statistic: Statistic, before: Array, after: Array) -> Shift | None:
    if not (len(before) and len(after)):
        return None
    one, other = statistic(before), statistic(after)
    if not (math.isfinite(one) and math.isfinite(other)):
        return None
    return Shift(*_certain(other - one), len(after), True, abs(one))


def _certain(shift: float) -> Estimate:
    return shift, float(shift == 0), lambda error: (shift, shift)


def _of_means(before: Array, after: Array, paired: bool) -> Estimate:
    shift = float(np.mean(after) - np.mean(before))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about samples that are all but constant
        test = (
            stats.ttest_rel(after, before)
            if paired
            else stats.ttest_ind(after, before, equal_var=False)
        )
    if not math.isfinite(test.statistic):  # all draws moved alike
        return _certain(shift)
    return shift, float(test.pvalue), lambda error: _ends(test.confidence_interval(1 - error))


def _of_changes(before: Array, after: Array, paired: bool) -> Estimate:
    up, down = np.count_nonzero(after > before), np.count_nonzero(after < before)
    if not up + down:
        return _certain(0.0)
    test, share = stats.binomtest(up, up + down), (up + down) / len(after)

    def interval(error: float) -> Pair:
        low, high = _ends(test.proportion_ci(1 - error))
        return (2 * low - 1) * share, (2 * high - 1) * share

    return (up - down) / len(after), float(test.pvalue), interval


def _of_differences(before: Array, after: Array, paired: bool) -> Estimate:
    apart = after - before
    p = float(stats.quantile_test(apart, q=0.0, p=0.5).pvalue)
    interval = statistics.median.interval
    return float(np.median(apart)), p, lambda error: interval(apart, 1 - error)


def _of_medians(before: Array, after: Array, paired: bool) -> Estimate:
    shift = float(np.median(after) - np.median(before))
    sides = [statistics.median.interval(each, 0.95) for each in (before, after)]
    spread = math.hypot(*(high - low for low, high in sides)) / (2 * stats.norm.ppf(0.975))
    if spread == 0:
        return _certain(shift)
    p = 2 * float(stats.norm.sf(abs(shift) / spread))
    return shift, p, lambda error: _ends(stats.norm.interval(1 - error, shift, spread))


def _ends(interval: tuple[Any, Any]) -> Pair:
    low, high = interval
    return float(low), float(high)
