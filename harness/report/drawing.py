"""The common parts of the pictures of findings: series, their colours, legends and notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from assay.harness.report import canvas, svg, texts
from assay.harness.report.scales import numbers
from assay.harness.results.arrays import Array

WIDTH, HEIGHT, LETTERS = 360, 250, 12.0
LEFT, TOP, RIGHT, BOTTOM = 46, 30, 12, 42

MOST_SERIES = 12

COLOURS = ("s1", "s2", "s3", "s4", "s5", "s6")
DASHES = ("solid", (0, (4, 2)))
"""After the last colour the colours start again, dashed."""


@dataclass(frozen=True)
class Entry:
    """One line of a legend: a label, its colour's name on the page, a number or two."""

    label: str
    colour: str
    dashed: bool = False
    note: str = ""


@dataclass
class Drawing:
    """A picture with its legend, notes, and a description in words."""

    svg: str = ""
    legend: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    spoken: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Series:
    """One labelled array with the look of its line."""

    label: str
    values: Array
    colour: str
    dashed: bool

    @property
    def ink(self) -> str:
        """The stand-in for its colour (see `svg.COLOURS`)."""
        return svg.COLOURS[self.colour]

    @property
    def style(self) -> Any:
        """The dashes of its line, as matplotlib has them."""
        return DASHES[self.dashed]

    def entry(self, note: str = "") -> Entry:
        """Its line in the legend."""
        return Entry(self.label, self.colour, self.dashed, note)


def listed(
    arrays: dict[str, Array], fit: Callable[[Array], Array | None], drawing: Drawing
) -> list[Series]:
    """The arrays for which ``fit`` returns values, each with its look; notes on the others."""

    def fitting() -> Iterator[tuple[str, Array]]:
        for label, array in arrays.items():
            values = fit(numbers(array))
            if values is None or not values.size:
                drawing.notes.append(f"Nothing to draw for ‘{texts.visible(label)}’.")
            else:
                yield texts.visible(label), values

    chosen = list(islice(fitting(), MOST_SERIES))
    if len(arrays) - len(drawing.notes) > MOST_SERIES:
        drawing.notes.append(f"{len(arrays)} series; the first {MOST_SERIES} are drawn.")
    return [
        Series(label, values, COLOURS[i % len(COLOURS)], i >= len(COLOURS))
        for i, (label, values) in enumerate(chosen)
    ]


def paint(salt: str, put: Callable[[Axes], None]) -> str:
    """A drawing of the usual size, into which ``put`` draws."""

    def fill(figure: Figure) -> None:
        put(canvas.axes_within(figure, LEFT, TOP, RIGHT, BOTTOM))

    return canvas.draw(fill, "plot", (WIDTH, HEIGHT), LETTERS, salt, decimals=1)


def dots(axes: Axes, points: Array, ink: str, size: float, alpha: float) -> None:
    """Round dots at ``points`` [n, 2]: lines of no length with round ends, which are short."""
    gap = np.full(len(points), math.nan)
    x, y = (np.column_stack([c, c, gap]).ravel() for c in points.T)
    axes.plot(x, y, color=ink, linewidth=size, alpha=alpha, solid_capstyle="round", clip_on=False)
