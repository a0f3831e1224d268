"""Times two implementations in turns, so that a slower machine slows both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.benchmarks.machine import Monitor, Vitals
from assay.benchmarks.stopwatch import Lap, Stopwatch
from assay.harness.results.arrays import Array

EARLY = 0.9
"""Host-to-device ratio below which a timing counts as unsynchronised."""

SLOW = 0.85
"""Ratio to the fastest clock of the rounds below which a clock counts as throttled."""

DRIFT = 0.2
"""Relative difference between the machine's best and worst round from which it is reported."""


@dataclass
class Rounds:
    """Rounds that each time ``ours`` and measure others ``beside`` it.

    In the first round ours comes last, in the second first, and so on by turns, so that effects
    in the course of a round favour neither.  ``laps`` [rounds] are ours; ``others``, by name, the
    other measurements [rounds]; ``vitals`` [rounds] those of the device right after ours.
    ``flush`` is called before each of them.
    """

    ours: Callable[[], object]
    beside: Mapping[str, Callable[[], float]]
    stopwatch: Stopwatch
    monitor: Monitor = Vitals
    laps: list[Lap] = field(default_factory=list)
    others: dict[str, list[float]] = field(default_factory=dict)
    vitals: list[Vitals] = field(default_factory=list)
    flush: Callable[[], object] = lambda: None

    def run(self, benchmark: Any, rounds: int) -> None:
        """Run through pytest-benchmark, which times ours as well and keeps its own results."""
        benchmark.pedantic(self._ours, setup=self._before, rounds=rounds, iterations=1)
        self._end_round()

    def _before(self) -> None:
        self._end_round()
        if len(self.laps) % 2 == 0:
            self._measure_others()
        self.flush()

    def _end_round(self) -> None:
        if self.laps:
            self.vitals.append(self.monitor())
            if len(self.laps) % 2 == 0:
                self._measure_others()

    def _measure_others(self) -> None:
        for name, measure in self.beside.items():
            self.flush()
            self.others.setdefault(name, []).append(measure())

    def _ours(self) -> None:
        self.laps.append(self.stopwatch.lap(self.ours))

    @property
    def seconds(self) -> Array:
        """Ours: [rounds]."""
        return np.array([lap.seconds for lap in self.laps])

    def times(self, other: str, work: float = 1.0) -> Array:
        """The speed of ours over that of the ``other``: [rounds].

        ``work`` is the ratio of ours to the other in the work of a round.
        """
        return np.asarray(work * np.array(self.others[other]) / self.seconds)

    def doubts(self) -> list[str]:
        """Reasons to doubt these times, each in one line."""
        doubts = []
        early = [lap for lap in self.laps if lap.device and lap.seconds < EARLY * lap.device]
        if early:
            doubts.append(
                f"missing synchronise: {len(early)} of {len(self.laps)} rounds were read before "
                f"the device was done ({early[0].seconds:.3g} s of {early[0].device:.3g})"
            )
        reasons = sorted({why for each in self.vitals for why in each.throttled})
        if reasons:
            doubts.append(f"throttled: {', '.join(reasons)}")
        clocks = [each.clock for each in self.vitals if each.clock]
        if clocks and min(clocks) < SLOW * max(clocks):
            doubts.append(
                f"throttled: the clock fell from {max(clocks):.0f} to {min(clocks):.0f} MHz"
            )
        speeds = self.others.get("product", [])
        if len(speeds) > 1 and (apart := max(speeds) / min(speeds) - 1) > DRIFT:
            doubts.append(
                f"the machine's own speed differed by {100 * apart:.0f} % between rounds: "
                "believe ratios of one round, and not seconds"
            )
        return doubts
