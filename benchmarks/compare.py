"""Two ways timed in turns, so that what slows the machine down slows both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.arrays import Array
from harness.statistics import median

CONFIDENCE = 0.9
"""Of intervals over rounds: of five, all of them."""


@dataclass
class Rounds:
    """Rounds in each of which ``ours`` is timed, after others were measured ``beside`` it.

    ``seconds`` [rounds] are ours; ``others``, by name, what was measured beside them [rounds].
    """

    ours: Callable[[], object]
    beside: Mapping[str, Callable[[], float]]
    clock: Callable[[], float]
    seconds: list[float] = field(default_factory=list)
    others: dict[str, list[float]] = field(default_factory=dict)

    def run(self, benchmark: Any, rounds: int) -> None:
        """Through pytest-benchmark, which times ours as well and keeps what it finds."""
        benchmark.pedantic(self._ours, setup=self._beside, rounds=rounds, iterations=1)

    def _beside(self) -> None:
        for name, measure in self.beside.items():
            self.others.setdefault(name, []).append(measure())

    def _ours(self) -> None:
        self.seconds.append(timed(self.ours, self.clock)())

    def times(self, other: str, work: float = 1.0) -> Array:
        """How many times as fast ours is as the ``other``, by rounds.

        ``work`` is how much more of it ours does in a round.
        """
        return work * np.array(self.others[other]) / np.array(self.seconds)


def timed(call: Callable[[], object], clock: Callable[[], float]) -> Callable[[], float]:
    """``call``, told as the seconds that it takes."""

    def seconds() -> float:
        begun = clock()
        call()
        return clock() - begun

    return seconds


def interval(sample: Array) -> tuple[float, float, float]:
    """The median over rounds, and an interval for it; all rounds where they are few."""
    low, high = median.interval(sample, CONFIDENCE)
    return (
        float(np.median(sample)),
        float(low if np.isfinite(low) else sample.min()),
        float(high if np.isfinite(high) else sample.max()),
    )
