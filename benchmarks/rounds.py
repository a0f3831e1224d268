"""Times two implementations in turns, so that a slower machine slows both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.benchmarks.stopwatch import Lap, Stopwatch
from assay.harness.checking.statistics import median
from assay.harness.models.vitals import Monitor, Vitals
from assay.harness.results.arrays import Array

CONFIDENCE = 0.9
"""Confidence of intervals over rounds: of five rounds, the interval is all of them."""

EARLY = 0.9
"""Host-to-device ratio below which a timing counts as unsynchronised."""

SLOW = 0.85
"""Ratio to the fastest clock of the rounds below which a clock counts as throttled."""

STEADY = 0.01
"""Relative standard error of the mean at which no further round is needed."""

UNSTEADY = 0.05
"""Relative standard error above which times are doubted."""

WARM = 0.02
"""Relative difference of the last laps, and of the clock, below which a device is warm."""

WARM_LAPS, WARM_SECONDS = 3, 2.0
"""Laps that have to agree, and the most seconds to wait for that."""

EXTRA_SECONDS = 20.0
"""Seconds after which no further round is added."""

DRIFT = 0.2
"""Relative difference between the machine's best and worst round from which it is reported."""


@dataclass
class Rounds:
    """Rounds that each time ``ours`` and measure others ``beside`` it.

    In the first round ours comes last, in the second first, and so on by turns, so that effects
    in the course of a round favour neither.  ``laps`` [rounds] are ours; ``others``, by name, the
    other measurements [rounds]; ``vitals`` [rounds] those of the device right after ours, and
    ``used`` the joules of each round.
    """

    ours: Callable[[], object]
    beside: Mapping[str, Callable[[], float]]
    stopwatch: Stopwatch
    monitor: Monitor = Vitals
    laps: list[Lap] = field(default_factory=list)
    others: dict[str, list[float]] = field(default_factory=dict)
    vitals: list[Vitals] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    flush: Callable[[], object] = lambda: None

    def run(self, benchmark: Any, rounds: int, most: int = 0, warm: bool = False) -> None:
        """Run through pytest-benchmark, which times ours as well and keeps its own results.

        With ``warm`` the device is brought to a steady clock first.  After ``rounds``, others are
        added up to ``most`` until the relative standard error is below `STEADY`, or
        `EXTRA_SECONDS` are over; pytest-benchmark does not know of them.
        """
        if warm:
            self.warm_up()
        self.stopwatch.wait()
        benchmark.pedantic(self._ours, setup=self._between, rounds=rounds, iterations=1)
        self._end_round()
        began = self.stopwatch.now()
        while len(self.laps) < most and self.error > STEADY:
            if self.stopwatch.now() - began > EXTRA_SECONDS:
                break
            self._between(ended=True)
            self._ours()
            self._end_round()

    def warm_up(self) -> int:
        """Call ours until the last laps and the clock agree, or time is over; the calls."""
        began = self.stopwatch.now()
        laps: list[float] = []
        clocks: list[float] = []
        while self.stopwatch.now() - began < WARM_SECONDS:
            laps.append(self.stopwatch.lap(self.ours).seconds)
            clocks.append(self.monitor().clock or 1.0)
            if len(laps) >= WARM_LAPS and all(
                max(last) <= (1 + WARM) * min(last)
                for last in (laps[-WARM_LAPS:], clocks[-WARM_LAPS:])
            ):
                break
        return len(laps)

    def _between(self, ended: bool = False) -> None:
        """Before ours: finish the last round, and measure the others if they come first."""
        if not ended:
            self._end_round()
        if len(self.laps) % 2 == 0:
            self._beside()

    def _end_round(self) -> None:
        if len(self.laps) and len(self.laps) % 2 == 0:
            self._beside()

    def _beside(self) -> None:
        for name, measure in self.beside.items():
            self.flush()
            self.others.setdefault(name, []).append(measure())

    def _ours(self) -> None:
        self.flush()
        before = self.monitor().joules
        self.laps.append(self.stopwatch.lap(self.ours))
        self.vitals.append(after := self.monitor())
        if before is not None and after.joules is not None:
            self.used.append(after.joules - before)

    @property
    def seconds(self) -> list[float]:
        """Ours, by rounds."""
        return [lap.seconds for lap in self.laps]

    @property
    def error(self) -> float:
        """The relative standard error of the mean of ours; infinite for fewer than two rounds."""
        sample = np.array(self.seconds)
        if len(sample) < 2:
            return float("inf")
        return float(sample.std(ddof=1) / np.sqrt(len(sample)) / sample.mean())

    @property
    def quantiles(self) -> dict[str, list[float]]:
        """The 20th, 50th and 80th percentile of ours and of each other, by name."""
        samples = {"ours": self.seconds, **self.others}
        return {
            name: np.quantile(each, (0.2, 0.5, 0.8)).tolist() for name, each in samples.items()
        }

    def times(self, other: str, work: float = 1.0) -> Array:
        """The speed of ours over that of the ``other``, by rounds.

        ``work`` is the ratio of ours to the other in the work of a round.
        """
        return work * np.array(self.others[other]) / np.array(self.seconds)

    @property
    def joules(self) -> float | None:
        """Joules of the device in the median round of ours; None if unknown."""
        return float(np.median(self.used)) if self.used else None

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
        if self.error != float("inf") and self.error > UNSTEADY:
            doubts.append(
                f"not steady: the mean of {len(self.laps)} rounds is known to "
                f"{100 * self.error:.0f} %"
            )
        failed = [each.uncorrected for each in self.vitals if each.uncorrected is not None]
        if failed and failed[-1] > failed[0]:
            doubts.append(f"memory errors: {failed[-1] - failed[0]} that ECC could not correct")
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


def interval(sample: Array) -> tuple[float, float, float]:
    """The median over rounds, and an interval for it; all rounds where they are few."""
    low, high = median.interval(sample, CONFIDENCE)
    return (
        float(np.median(sample)),
        float(low if np.isfinite(low) else sample.min()),
        float(high if np.isfinite(high) else sample.max()),
    )
