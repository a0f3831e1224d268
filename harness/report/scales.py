"""Axes of plots: their limits, the labels of their marks, and their look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, ScalarFormatter

from assay.harness.report import texts
from assay.harness.report.canvas import LINE, MUTED
from assay.harness.results.arrays import Array

HUGE = 1e100
"""Numbers beyond this count as infinite: sums of a few would overflow in drawing."""

MOST_LETTERS = 44
"""Of an axis's name."""


def numbers(array: Array) -> Array:
    """``array`` as float64 with NaN in place of numbers that cannot be drawn."""
    array = np.asarray(array, dtype=np.float64)
    return np.where(np.abs(array) < HUGE, array, math.nan)


def limits(values: Array, log: bool = False, pad: float = 0.05) -> tuple[float, float]:
    """The ends of an axis that holds the finite ones of ``values`` (logarithms if ``log``)."""
    values = values[np.isfinite(values)]
    low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
    spare = (high - low) * pad
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        spare = (0.5 if log else abs(low) * 0.1) or 1.0
    return float(low - spare), float(high + spare)


def plain(value: float) -> str:
    """A number on a log scale: ``0.01``, ``2000``, ``10⁻⁶``."""
    if 0.001 <= abs(value) < 1e5 or value == 0:
        return f"{value:.5g}".replace("-", "−")
    return texts.power(value)


def frame(
    axes: Axes,
    x: str,
    y: str,
    grid: Sequence[Literal["x", "y"]] = ("x", "y"),
    log: bool = False,
    marks: Array | None = None,
    whole: bool = False,
) -> None:
    """Marks and names of both axes; the name of ``y`` lies flat above it.

    With ``log`` x is in logarithms.  ``marks`` are positions of its marks, used if they are few.
    """
    under = _marked(axes.xaxis, x, log, whole, marks)
    above = _marked(axes.yaxis, y, False, whole)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(length=0, pad=6, labelcolor=MUTED)
    axes.set_axisbelow(True)
    for which in grid:
        axes.grid(visible=True, axis=which, color=LINE, linewidth=1)
    axes.set_xlabel(under, color=MUTED, parse_math=False)
    left = axes.get_window_extent().x0
    axes.annotate(
        above, (0, 1), xycoords="axes fraction", xytext=(-left, 10),
        textcoords="offset pixels", color=MUTED, va="bottom", parse_math=False,
    )  # fmt: skip


def _marked(axis: Axis, name: str, log: bool, whole: bool, marks: Array | None = None) -> str:
    """Set the marks of ``axis``; returns its name, with the offset that the marks share."""
    low, high = sorted(axis.get_view_interval())
    name = texts.shortened(texts.visible(name), MOST_LETTERS)
    if marks is not None and _apart(marks, high - low, log):
        axis.set_major_locator(FixedLocator(list(marks)))
    elif log:
        axis.set_major_locator(FixedLocator(_decades(low, high)))
    else:
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10], integer=whole))
    if log:
        axis.set_major_formatter(FuncFormatter(lambda at, _: plain(float(f"{10.0**at:.3g}"))))
        return name
    formatter = ScalarFormatter()
    axis.set_major_formatter(formatter)
    formatter.set_powerlimits((-3, 5))
    formatter.set_locs([at for at in axis.get_majorticklocs() if low <= at <= high])
    axis.offsetText.set_visible(False)
    common = formatter.get_offset()
    return f"{name} ({common})".strip() if common else name


def _apart(positions: Array, span: float, log: bool) -> bool:
    """Whether there are few ``positions``, far enough from one another for their numbers."""
    labels = [plain(10.0**at if log else at) for at in positions]
    apart = bool((np.diff(positions) > 0.11 * span).all())
    return 1 <= len(positions) <= 7 and apart and max(map(len, labels)) <= 6


def _decades(low: float, high: float) -> list[float]:
    """Logarithms of round numbers: powers of ten, with steps between them where there are few."""
    span = high - low
    steps: Sequence[float] = (1, 2, 5) if span < 1.4 else (1, 3) if span < 2.6 else (1,)
    every = math.ceil(span / 7) if len(steps) == 1 else 1
    exponents = range(math.floor(low), math.ceil(high) + 1)
    positions = [e + math.log10(step) for e in exponents if e % every == 0 for step in steps]
    within = [position for position in positions if low <= position <= high]
    return within if len(within) > 1 else [low + span * 0.1, high - span * 0.1]
