"""Figures with their goals, and the table at the end of a run of benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich import box
from rich.table import Table

from assay.harness.results.arrays import Array


@dataclass(frozen=True)
class Figure:
    """A measurement: ``reached`` is the median of the rounds, from ``low`` to ``high``.

    ``goal`` is a lower bound, or with ``at_most`` an upper one; some figures have none.
    """

    benchmark: str
    what: str
    reached: float
    low: float
    high: float
    goal: float | None = None
    at_most: bool = False

    @classmethod
    def of(
        cls,
        benchmark: str,
        what: str,
        sample: Array,
        goal: float | None = None,
        at_most: bool = False,
    ) -> Figure:
        """The figure of some rounds."""
        reached, low, high = map(float, (np.median(sample), sample.min(), sample.max()))
        return cls(benchmark, what, reached, low, high, goal, at_most)

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        if self.goal is None:
            return None
        return self.reached <= self.goal if self.at_most else self.reached >= self.goal


def number(value: float) -> str:
    """``value`` with three digits."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


MARKS = {True: "[green]✓ met[/]", False: "[red]✗ missed[/]", None: ""}


def table(figures: Sequence[Figure], machine: str) -> Table:
    """One row for each figure; missed goals say so."""
    rows = Table(box=box.SIMPLE_HEAD, title=machine, title_justify="left", pad_edge=False)
    for name in ("benchmark", "figure"):
        rows.add_column(name)
    for name in ("goal", "reached", "over rounds", ""):
        rows.add_column(name, justify="right", no_wrap=True)
    for each in figures:
        goal = "" if each.goal is None else f"{'≤' if each.at_most else '≥'} {number(each.goal)}"
        rounds = "" if each.low == each.high else f"{number(each.low)} to {number(each.high)}"
        mark = MARKS[each.met]
        rows.add_row(each.benchmark, each.what, goal, number(each.reached), rounds, mark)
    return rows
