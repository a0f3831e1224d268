"""Axes of plots: which numbers are marked on them, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from assay.harness.report import texts
from assay.harness.report.canvas import LINE, MUTED
from assay.harness.results.arrays import Array

HUGE = 1e100
"""Numbers beyond this are as good as infinite: sums of a few would overflow in drawing."""

MOST_LETTERS = 44
"""Of an axis's name."""


def numbers(array: Array) -> Array:
    """``array`` as float64 with NaN in the place of all that cannot be drawn."""
    array = np.asarray(array, dtype=np.float64)
    return np.where(np.abs(array) < HUGE, array, math.nan)


@dataclass(frozen=True)
class Scale:
    """One axis: its ends, its marks by place, and its name; a log one is in decades."""

    low: float
    high: float
    marks: tuple[tuple[float, str], ...]
    name: str = ""


def scale(
    values: Array, name: str, log: bool = False, pad: float = 0.05, whole: bool = False
) -> Scale:
    """An axis that holds the finite ones of ``values``; marks in decades, or whole numbers."""
    values = values[np.isfinite(values)]
    low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
    spare = (high - low) * pad
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        spare = (0.5 if log else abs(low) * 0.1) or 1.0
    low, high = float(low - spare), float(high + spare)
    if log:
        return Scale(low, high, _decades(low, high), name)
    return _linear(low, high, name, whole)


def at_values(axis: Scale, places: Array, log: bool) -> Scale:
    """``axis`` with marks at ``places`` instead, if they are few and stand apart."""
    places = np.unique(places[np.isfinite(places)])
    apart = np.diff(places) > 0.11 * (axis.high - axis.low)
    if not 1 <= len(places) <= 7 or not apart.all():
        return axis
    values = 10.0**places if log else places
    told = [plain(value) for value in values]
    if max(map(len, told)) > 6:
        return axis
    marks = tuple(zip(map(float, places), told, strict=True))
    return Scale(axis.low, axis.high, marks, axis.name)


def plain(value: float) -> str:
    """A number on a log scale: ``0.01``, ``2000``, ``10⁻⁶``."""
    if 0.001 <= abs(value) < 1e5 or value == 0:
        return f"{value:.5g}".replace("-", "−")
    return texts.power(value)


def _linear(low: float, high: float, name: str, whole: bool) -> Scale:
    """Round numbers; what they have in common, a power or an offset, goes to the name."""
    locator = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10], integer=whole)
    places = np.array([p for p in locator.tick_values(low, high) if low <= p <= high])
    if len(places) < 2:
        return Scale(low, high, tuple((float(p), plain(p)) for p in places), name)
    step = float(places[1] - places[0])
    base = 0.0
    if step < 1e-4 * float(np.abs(places).max()):
        base = float(places[0])
        name = f"{name} − {base:.12g}" if base > 0 else f"{name} + {-base:.12g}"
    exponent = math.floor(math.log10(float(np.abs(places - base).max())) + 1e-9)
    power = exponent if exponent >= 5 or exponent <= -3 else 0
    if power:
        name = f"{name} (× 10{str(power).translate(texts.SUPERSCRIPTS)})"
    scaled = (places - base) / 10.0**power
    # As many decimals as the step has: 0.25 two, 0.5 one, 20 none.
    spacing = step / 10.0**power
    digits = next((d for d in range(6) if abs(spacing * 10**d - round(spacing * 10**d)) < 1e-6), 6)
    told = [f"{value + 0.0:.{digits}f}".replace("-", "−") for value in scaled.round(9)]
    return Scale(low, high, tuple(zip(map(float, places), told, strict=True)), name.strip())


def _decades(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Powers of ten, with steps between them where there are few."""
    span = high - low
    mantissas: Sequence[float] = (1, 2, 5) if span < 1.4 else (1, 3) if span < 2.6 else (1,)
    step = math.ceil(span / 7) if len(mantissas) == 1 else 1
    places = [
        exponent + math.log10(mantissa)
        for exponent in range(math.floor(low), math.ceil(high) + 1)
        if exponent % step == 0
        for mantissa in mantissas
    ]
    within = [place for place in places if low <= place <= high]
    if len(within) < 2:
        within = [low + span * 0.1, high - span * 0.1]
    return tuple((place, plain(float(f"{10.0**place:.3g}"))) for place in within)


def frame(axes: Axes, x: Scale, y: Scale, grid: Sequence[Literal["x", "y"]] = ("x", "y")) -> None:
    """Limits, marks and names of both axes; the name of ``y`` lies flat above it."""
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    axes.set_xticks([place for place, _ in x.marks], [told for _, told in x.marks])
    axes.set_yticks([place for place, _ in y.marks], [told for _, told in y.marks])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(length=0, pad=6, labelcolor=MUTED)
    axes.set_axisbelow(True)
    for which in grid:
        axes.grid(visible=True, axis=which, color=LINE, linewidth=1)
    under, above = (texts.shortened(texts.visible(s.name), MOST_LETTERS) for s in (x, y))
    axes.set_xlabel(under, color=MUTED, parse_math=False)
    _above(axes, above)


def _above(axes: Axes, name: str) -> None:
    left = axes.get_window_extent().x0
    axes.annotate(
        name, (0, 1), xycoords="axes fraction", xytext=(-left, 10),
        textcoords="offset pixels", color=MUTED, va="bottom", parse_math=False,
    )  # fmt: skip
