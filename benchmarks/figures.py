"""Figures with their goals, and the table at the end of a run of benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich import box
from rich.table import Table

from assay.benchmarks.rounds import interval
from assay.harness.models.subject import Subject
from assay.harness.report.cards import number
from assay.harness.results.arrays import Array


@dataclass(frozen=True)
class Figure:
    """A measurement: ``reached`` is the median of the rounds, from ``low`` to ``high``.

    ``goal`` is a lower bound, or with ``at_most`` an upper one; some figures have none.  ``p20``
    and ``p80`` are percentiles of the rounds.
    """

    benchmark: str
    what: str
    reached: float
    low: float
    high: float
    goal: float | None = None
    at_most: bool = False
    p20: float | None = None
    p80: float | None = None

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
        p20, p80 = np.quantile(sample, (0.2, 0.8)).tolist()
        return cls(benchmark, what, *interval(sample), goal, at_most, p20, p80)

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        if self.goal is None:
            return None
        return self.reached <= self.goal if self.at_most else self.reached >= self.goal

    @property
    def wanted(self) -> str:
        """The goal in words."""
        if self.goal is None:
            return ""
        return f"{'≤' if self.at_most else '≥'} {number(self.goal)}"

    def __str__(self) -> str:
        if self.goal is None:
            return f"{self.what}: {number(self.reached)}"
        sign = "at most " if self.at_most else ""
        return f"{self.what}: goal {sign}{number(self.goal)}, reached {number(self.reached)}"


def roofline(model: Subject, rate: float, intensity: float) -> dict[str, object]:
    """A point of the roofline: FLOP/s reached over FLOP per byte that has to be moved."""
    arithmetic = str(model.dtype).removeprefix("torch.")
    return {
        "model": model.name,
        "arithmetic": arithmetic,
        "flops_per_second": rate,
        "intensity": intensity,
    }


MARKS = {True: "[green]✓ met[/]", False: "[red]✗ missed[/]", None: ""}


def table(figures: Sequence[Figure], machine: str) -> Table:
    """One row for each figure; missed goals say so."""
    rows = Table(box=box.SIMPLE_HEAD, title=machine, title_justify="left", pad_edge=False)
    for name in ("benchmark", "figure"):
        rows.add_column(name)
    for name in ("goal", "reached", "over rounds", ""):
        rows.add_column(name, justify="right", no_wrap=True)
    for each in figures:
        rounds = "" if each.low == each.high else f"{number(each.low)} to {number(each.high)}"
        mark = MARKS[each.met]
        rows.add_row(each.benchmark, each.what, each.wanted, number(each.reached), rounds, mark)
    return rows
