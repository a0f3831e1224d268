"""Estimates how far a number moved between two runs, with p-values and intervals.

Two samples are paired where their runs drew the same inputs: the estimate uses the differences
draw by draw, which removes the variance that the draws share.  Each p-value and its interval
belong to one test: the interval at 1 - p touches 0.

    share                 McNemar's exact test; Clopper and Pearson's interval of the changes
    median                of the differences: sign test, interval between order statistics
    mean, law's margin    Student's t of the differences
    ratio, correlation    the same of jackknife pseudo-values
    value, highest        no estimate: any difference is one

Unpaired, a share has Agresti and Caffo's interval, a median Price and Bonett's, and the others
that of Welch's t.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats

from assay.harness.checking import statistics
from assay.harness.checking.statistics import Pair, Statistic
from assay.harness.results.arrays import Array

FEWEST = 3
"""Minimum number of draws to judge a shift."""

GROUPS = 32
"""Number of groups of draws that a jackknife leaves out, one at a time."""

USUAL = 0.05
"""Error of the intervals from which the standard error of a median is computed."""

HALF = 0.5
"""The largest standard deviation of a Boolean draw."""


@dataclass(frozen=True)
class Shift:
    """By how much a statistic is larger in the second run, and how surely.

    ``scale`` is the spread of one draw, so that ``size`` is a number of such spreads; ``p`` is
    the p-value of no shift, and ``interval(error)`` misses the shift with this probability.
    ``draws`` is the number of draws, each in both runs if ``paired``.
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
    if min(len(before), len(after)) < FEWEST:
        return None
    if statistic is statistics.share:
        return _of_shares(before != 0, after != 0, paired)
    if statistic is statistics.median:
        return _of_medians(before, after, paired)
    draws, scale = len(after), 1.0
    if before.ndim == 2:
        scale = math.sqrt(len(before) / min(len(before), GROUPS))  # of one draw, not of a group
        before, after = (pseudo_values(statistic, each) for each in (before, after))
        if not (np.isfinite(before).all() and np.isfinite(after).all()):
            return None
    return _of_means(before, after, paired, draws, scale * float(np.std(before, ddof=1)))


def of_margins(before: Array, after: Array, paired: bool) -> Shift | None:
    """The shift of a law's margin over its examples, in decades."""
    shift = between(statistics.mean, before, after, paired)
    return None if shift is None else Shift(**{**vars(shift), "scale": 1.0})


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
    shift = other - one
    return Shift(
        shift, float(shift == 0), lambda error: (shift, shift), len(after), True, abs(one)
    )


def _of_means(before: Array, after: Array, paired: bool, draws: int, scale: float) -> Shift:
    if paired:
        apart = after - before
        n = len(apart)
        return _student(
            float(apart.mean()), float(apart.var(ddof=1)) / n, n - 1, draws, True, scale
        )
    parts = [float(each.var(ddof=1)) / len(each) for each in (before, after)]
    shares = [part**2 / (len(x) - 1) for part, x in zip(parts, (before, after), strict=True)]
    freedom = sum(parts) ** 2 / sum(shares) if sum(shares) else 1.0
    shift = float(after.mean() - before.mean())
    return _student(shift, sum(parts), freedom, draws, False, scale)


def _student(
    shift: float, variance: float, freedom: float, draws: int, paired: bool, scale: float
) -> Shift:
    """``freedom`` is infinite for a normal distribution."""
    spread = math.sqrt(variance)
    if spread == 0:
        p = float(shift == 0)
    elif math.isinf(freedom):
        p = 2 * float(special.ndtr(-abs(shift) / spread))
    else:
        p = 2 * float(special.stdtr(freedom, -abs(shift) / spread))

    def interval(error: float) -> Pair:
        if spread == 0:
            return shift, shift
        normal = math.isinf(freedom)
        quantile = special.ndtri(1 - error / 2) if normal else -special.stdtrit(freedom, error / 2)
        return shift - float(quantile) * spread, shift + float(quantile) * spread

    return Shift(shift, p, interval, draws, paired, scale)


def _of_shares(before: Any, after: Any, paired: bool) -> Shift:
    if not paired:
        # Agresti and Caffo: one success and one failure more on either side.
        shares = [(np.count_nonzero(each) + 1) / (len(each) + 2) for each in (before, after)]
        variance = sum(
            p * (1 - p) / (len(x) + 2) for p, x in zip(shares, (before, after), strict=True)
        )
        shift = float(shares[1] - shares[0])
        if np.mean(before) == np.mean(after):
            shift = 0.0
        return _student(shift, float(variance), math.inf, len(after), False, HALF)
    n = len(after)
    up, down = int(np.count_nonzero(after & ~before)), int(np.count_nonzero(before & ~after))
    changed = up + down
    p = min(1.0, 2 * float(special.bdtr(min(up, down), changed, 0.5))) if changed else 1.0

    def interval(error: float) -> Pair:
        low = float(special.betaincinv(up, down + 1, error / 2)) if up else 0.0
        high = float(special.betaincinv(up + 1, down, 1 - error / 2)) if down else 1.0
        return (2 * low - 1) * changed / n, (2 * high - 1) * changed / n

    return Shift((up - down) / n, p, interval, n, True, HALF)


def _of_medians(before: Array, after: Array, paired: bool) -> Shift:
    low, high = np.quantile(before, (0.25, 0.75))
    scale = float(high - low) / 1.349  # a normal distribution's standard deviation
    if not paired:
        variance = _spread_of_median(before) ** 2 + _spread_of_median(after) ** 2
        shift = float(np.median(after) - np.median(before))
        return _student(shift, variance, math.inf, len(after), False, scale)
    apart = np.sort(after - before)
    n = len(apart)
    most = max(int(np.count_nonzero(apart > 0)), int(np.count_nonzero(apart < 0)))
    p = min(1.0, 2 * float(special.bdtr(n - most, n, 0.5)))

    def interval(error: float) -> Pair:
        k = _rank(n, error)
        return (float(apart[k - 1]), float(apart[n - k])) if k else statistics.NOWHERE

    return Shift(float(np.median(apart)), p, interval, n, True, scale)


@functools.lru_cache(maxsize=4096)
def _rank(n: int, error: float) -> int:
    """The largest k whose order statistics k and n + 1 - k are an interval of the median."""
    k = int(stats.binom.ppf(error / 2, n, 0.5))
    return k + 1 if special.bdtr(k, n, 0.5) <= error / 2 else k


def _spread_of_median(sample: Array) -> float:
    """Its standard error: half an interval between order statistics, in normal quantiles."""
    n, ordered = len(sample), np.sort(sample)
    k = max(1, _rank(n, USUAL))
    error = min(1.0, 2 * float(special.bdtr(k - 1, n, 0.5)))  # that of this very interval
    width = float(ordered[n - k] - ordered[k - 1])
    return width / (2 * float(special.ndtri(1 - error / 2))) if error < 1 else math.inf
