"""P-values of findings, and their adjustment for how many findings one run has.

Each finding is decided wrongly with a probability of at most 5 %.  A run has about a hundred, so
some of its verdicts are wrong by chance.  A finding's p-value is the smallest error at which its
interval would still decide it.  All p-values of a run are adjusted together (Benjamini and
Yekutieli, 2001: findings of one run share their model and prompts, so nothing is assumed about
their dependence).  ``docs/statistics.md`` says what this means for a reader.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from assay.harness.checking import statistics
from assay.harness.results.verdicts import Kind, Result, Verdict

if TYPE_CHECKING:
    from assay.harness.checking.bounds import Bound
    from assay.harness.results.arrays import Array

ERROR = 0.05
"""The false-discovery rate of decided findings, and the error of a single one."""

LEAST = 1e-12
"""Smaller p-values are not distinguished."""

HALVINGS = 12
"""Bisections of the range of errors, on a log scale: they find p to one part in a hundred."""

P = "p-value"
"""Key in a finding's details: its p-value, or None where it has none."""

WITHOUT_CHANCE = (statistics.exact, statistics.highest)
"""Statistics of the whole population: they are not estimates."""


def p_value(bound: Bound, values: Array, looks: int, verdict: Verdict) -> float | None:
    """The smallest error, over all ``looks``, at which ``values`` still give ``verdict``.

    ``verdict`` is the one at `ERROR`.  None for an undecided finding, and for a statistic that is
    not an estimate.  A bootstrap resolves no smaller errors than its resamples; beyond, its
    interval's end is assumed to move as a normal one does.
    """
    statistic = bound.statistic
    if verdict not in (Verdict.UPHELD, Verdict.REFUTED) or statistic in WITHOUT_CHANCE:
        return None
    share = statistic.caution / looks  # of an error, at which one interval is computed

    def decides(error: float) -> bool:
        return bound.verdict(statistic.interval(values, 1 - error * share)) is verdict

    finest = min(ERROR, 4 / statistics.RESAMPLES / share) if statistic.resampled else LEAST
    if decides(finest):
        return _beyond(bound, values, finest, share) if statistic.resampled else finest
    low, high = math.log(finest), math.log(ERROR)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if decides(math.exp(middle)) else (middle, high)
    return math.exp(high)


def _beyond(bound: Bound, values: Array, finest: float, share: float) -> float:
    """The p-value of a finding decided at the ``finest`` error, by the normal law beyond it."""
    value = bound.statistic(values)
    limit = bound.nearest(value)
    low, high = bound.statistic.interval(values, 1 - finest * share)
    width = (value - low) if limit < value else (high - value)
    if width <= 0.0:
        return LEAST
    deviations = scipy.stats.norm.isf(finest * share / 2) * abs(value - limit) / width
    p = 2 * float(scipy.stats.norm.sf(deviations)) / share
    return min(finest, max(LEAST, p))


def adjusted(results: Sequence[Result]) -> dict[int, float]:
    """The adjusted p-value of each decided finding that has one, by its index in ``results``.

    Undecided findings count among those that were tried.
    """
    tried = {i: _of(row) for i, row in enumerate(results) if _counts(row)}
    if not tried:
        return {}
    values = np.array(list(tried.values()))
    adjusted_values = scipy.stats.false_discovery_control(values, method="by")
    decided = (Verdict.UPHELD, Verdict.REFUTED)
    every = dict(zip(tried, adjusted_values.tolist(), strict=True))
    return {i: p for i, p in every.items() if results[i].verdict in decided}


def _of(row: Result) -> float:
    p: Any = row.details.get(P)
    return float(p) if isinstance(p, int | float) else 1.0


def _counts(row: Result) -> bool:
    """Whether a result is a finding that chance may have decided, or left undecided."""
    if row.kind is not Kind.FINDING or row.verdict is Verdict.NOT_APPLICABLE:
        return False
    return row.verdict is Verdict.INCONCLUSIVE or row.details.get(P) is not None


def summary(results: Iterable[Result]) -> str:
    """A sentence on how many decided findings may be wrong; empty where chance decided none."""
    every = list(results)
    ps = adjusted(every)
    if not ps:
        return ""
    stand = sum(p <= ERROR for p in ps.values())
    noun = "finding was" if len(ps) == 1 else "findings were"
    return (
        f"{len(ps)} {noun} decided by draws: {ERROR * len(ps):.2g} at most may be wrong by "
        f"chance, on average; judged together (Benjamini-Yekutieli), {stand} stand."
    )
