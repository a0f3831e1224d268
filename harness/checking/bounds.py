"""Bounds that a finding or its control must reach: limits of a statistic, or no difference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.harness.results.verdicts import DECADES, Verdict

if TYPE_CHECKING:  # scipy takes a second to import, too slow for a list of the claims
    from assay.harness.checking.statistics import Pair, Statistic


@dataclass(frozen=True)
class Bound:
    """The claimed side: ``statistic`` of the draws is within the finite limits.

    ``at_least`` and ``at_most`` are inclusive, ``above`` and ``below`` exclusive.
    """

    statistic: Statistic
    at_least: float = -math.inf
    at_most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def verdict(self, interval: Pair) -> Verdict:
        """Upheld or refuted if all of ``interval`` is on one side, else inconclusive."""
        low, high = interval
        inside = self.at_least <= low and high <= self.at_most
        strictly = self.above < low and (high < self.below or self.below == math.inf)
        if inside and strictly:
            return Verdict.UPHELD
        outside = high < self.at_least or low > self.at_most
        if outside or high <= self.above or low >= self.below:
            return Verdict.REFUTED
        return Verdict.INCONCLUSIVE

    @property
    def limits(self) -> tuple[float, ...]:
        """The finite limits, lower ones first."""
        every = (self.at_least, self.above, self.at_most, self.below)
        return tuple(limit for limit in every if math.isfinite(limit))

    def nearest(self, value: float) -> float:
        """The limit nearest to ``value``."""
        return min(self.limits, key=lambda limit: abs(limit - value))

    def margin(self, value: float, interval: Pair) -> float:
        """How far ``interval`` clears the nearest limit, in units of its half-width.

        0 where it touches the limit from the claimed side, -2 from the other side.
        """
        low, high = interval
        limit = self.nearest(value)
        half = (high - low) / 2
        lower = limit in (self.at_least, self.above)
        clear = low - limit if lower else limit - high
        if not math.isfinite(clear):
            return -DECADES
        if half == 0.0:
            return math.copysign(DECADES, clear) if clear else 0.0
        return max(-DECADES, min(DECADES, clear / half))

    def __str__(self) -> str:
        signs = {"at_least": "≥", "above": ">", "at_most": "≤", "below": "<"}
        parts = [
            f"{sign} {getattr(self, name):g}"
            for name, sign in signs.items()
            if math.isfinite(getattr(self, name))
        ]
        return f"{self.statistic.name} {' and '.join(parts)}"


@dataclass(frozen=True)
class NoDifference:
    """The bound of a control that compares like with like by ``statistic``.

    Its interval must contain 0 but no difference as large as the effect: two like sides differ by
    0 on average, and an interval too wide to distinguish 0 from the effect shows nothing.
    """

    statistic: Statistic

    def verdict(self, interval: Pair, effect: float) -> Verdict:
        """Upheld, refuted, or inconclusive where the control cannot detect this ``effect``.

        ``effect`` is the statistic of the claim's own series.
        """
        low, high = interval
        if not low <= 0.0 <= high:
            return Verdict.REFUTED
        return Verdict.UPHELD if self.sees(interval) < abs(effect) else Verdict.INCONCLUSIVE

    def sees(self, interval: Pair) -> float:
        """The largest difference within ``interval``: it excludes any larger one."""
        return max(-interval[0], interval[1])

    def __str__(self) -> str:
        return f"{self.statistic.name} 0, and a difference as large as the effect excluded"
