"""Times two implementations in turns, so that a slower machine slows both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.benchmarks.stopwatch import Lap, Stopwatch
from assay.benchmarks.vitals import Monitor, Vitals
from assay.harness.checking.statistics import median
from assay.harness.results.arrays import Array

CONFIDENCE = 0.9
"""Of intervals over rounds: of five, all of them."""

EARLY = 0.9
"""A host's time of less than so much of the device's was read before the device was done."""

SLOW = 0.85
"""A clock below so much of the fastest that the rounds saw is one that was held down."""

DRIFT = 0.2
"""A difference between the machine's own best and worst round that is worth a word."""


@dataclass
class Rounds:
    """Rounds in each of which ``ours`` is timed, and others are measured ``beside`` it.

    In the first round ours comes last, in the second first, and so on by turns: what warms up or
    wears off in the course of a round favours neither.  ``laps`` [rounds] are ours; ``others``, by
    name, what was measured beside them [rounds]; ``vitals`` [rounds] those of the device right
    after ours, and ``used`` the joules it took.
    """

    ours: Callable[[], object]
    beside: Mapping[str, Callable[[], float]]
    stopwatch: Stopwatch
    monitor: Monitor = Vitals
    laps: list[Lap] = field(default_factory=list)
    others: dict[str, list[float]] = field(default_factory=dict)
    vitals: list[Vitals] = field(default_factory=list)
    used: list[float] = field(default_factory=list)

    def run(self, benchmark: Any, rounds: int, warm_up: int = 0) -> None:
        """Through pytest-benchmark, which times ours as well and keeps what it finds."""
        for _ in range(warm_up):
            self.ours()
        self.stopwatch.wait()
        benchmark.pedantic(self._ours, setup=self._between, rounds=rounds, iterations=1)
        self._end_round()

    def _between(self) -> None:
        """Before ours is timed: the rest of the last round, and what comes first in this one."""
        self._end_round()
        if len(self.laps) % 2 == 0:
            self._beside()

    def _end_round(self) -> None:
        if len(self.laps) and len(self.laps) % 2 == 0:
            self._beside()

    def _beside(self) -> None:
        for name, measure in self.beside.items():
            self.others.setdefault(name, []).append(measure())

    def _ours(self) -> None:
        before = self.monitor().joules
        self.laps.append(self.stopwatch.lap(self.ours))
        self.vitals.append(after := self.monitor())
        if before is not None and after.joules is not None:
            self.used.append(after.joules - before)

    @property
    def seconds(self) -> list[float]:
        """Ours, by rounds."""
        return [lap.seconds for lap in self.laps]

    def times(self, other: str, work: float = 1.0) -> Array:
        """How many times as fast ours is as the ``other``, by rounds.

        ``work`` is how much more of it ours does in a round.
        """
        return work * np.array(self.others[other]) / np.array(self.seconds)

    @property
    def joules(self) -> float | None:
        """What the device used in the median round of ours; None if it does not say."""
        return float(np.median(self.used)) if self.used else None

    def doubts(self) -> list[str]:
        """Why these times should not be believed, each in one line."""
        found = []
        early = [lap for lap in self.laps if lap.device and lap.seconds < EARLY * lap.device]
        if early:
            found.append(
                f"missing synchronise: {len(early)} of {len(self.laps)} rounds were read before "
                f"the device was done ({early[0].seconds:.3g} s of {early[0].device:.3g})"
            )
        reasons = sorted({why for each in self.vitals for why in each.throttled})
        if reasons:
            found.append(f"throttled: {', '.join(reasons)}")
        clocks = [each.clock for each in self.vitals if each.clock]
        if clocks and min(clocks) < SLOW * max(clocks):
            found.append(
                f"throttled: the clock fell from {max(clocks):.0f} to {min(clocks):.0f} MHz"
            )
        speeds = self.others.get("product", [])
        if len(speeds) > 1 and (apart := max(speeds) / min(speeds) - 1) > DRIFT:
            found.append(
                f"the machine's own speed differed by {100 * apart:.0f} % between rounds: "
                "believe ratios of one round, and not seconds"
            )
        return found


def interval(sample: Array) -> tuple[float, float, float]:
    """The median over rounds, and an interval for it; all rounds where they are few."""
    low, high = median.interval(sample, CONFIDENCE)
    return (
        float(np.median(sample)),
        float(low if np.isfinite(low) else sample.min()),
        float(high if np.isfinite(high) else sample.max()),
    )
