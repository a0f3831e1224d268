"""Pictures of draws: for each label the density, the quartiles, the median and the draws."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from assay.harness.report import canvas, texts
from assay.harness.report.canvas import INK, MUTED
from assay.harness.report.drawing import BOTTOM, LETTERS, WIDTH, Drawing, Series, listed
from assay.harness.report.drawing import dots as put_dots
from assay.harness.report.scales import frame, limits
from assay.harness.results.arrays import Array, Plot

ROW = 74
"""Pixels for one label: its name, its density above a line, its draws below that."""

SIDES = 14
MOST_DOTS = 300
MOST_LETTERS = 26

FEW = 8
"""Fewer different values than this get no density curve."""

_NAME, _BASE, _PEAK, _DOTS = 12, 46, 25, (53, 66)
"""From the top of a row, in pixels: its name, its line; how high a density is; the draws."""

_GOLDEN = (5**0.5 - 1) / 2


def draw(plot: Plot, salt: str, drawing: Drawing) -> None:
    """Draw one row per label, all on one axis of values."""
    series = listed(plot.arrays, lambda draws: draws.ravel(), drawing)
    finite = [each.values[np.isfinite(each.values)] for each in series]
    log = plot.log and any((values > 0).any() for values in finite)
    if plot.log and not log and series:
        drawing.notes.append("Nothing is above zero, so the scale is linear.")
    floor = min((v[v > 0].min() for v in finite if (v > 0).any()), default=1.0)
    rows = []
    for each, values in zip(series, finite, strict=True):
        if lost := len(each.values) - len(values):
            whole = texts.counted(len(each.values), "draw")
            drawing.notes.append(f"{lost} of {whole} of ‘{each.label}’ not finite.")
        rows.append(np.sort(_placed(each.label, values, float(floor), log, drawing)))
    if not any(len(row) for row in rows):
        return
    name = plot.y or plot.x
    size = (WIDTH, len(series) * ROW + BOTTOM)

    def fill(figure: Figure) -> None:
        axes = canvas.axes_within(figure, SIDES, 0, SIDES, BOTTOM)
        axes.set(xlim=limits(np.concatenate(rows), log), ylim=(size[1] - BOTTOM, 0))
        frame(axes, f"{name} (log scale)" if log else name, "", grid=("x",), log=log)
        axes.set_yticks([])
        for i, (each, row) in enumerate(zip(series, rows, strict=True)):
            edge = int((finite[i] <= 0).sum()) if log else 0
            _row(axes, i * ROW, each, row, edge, _summary(row, finite[i]))

    drawing.svg = canvas.draw(fill, "plot", size, LETTERS, salt, decimals=1)
    if any(len(each.label) > MOST_LETTERS for each in series):
        drawing.legend = [each.entry() for each in series]
    drawing.spoken = [
        f"{each.label}: {_summary(row, values)}{_range(values)}."
        for each, row, values in zip(series, rows, finite, strict=True)
    ]


def _range(values: Array) -> str:
    if not values.size:
        return ""
    low, high = (texts.number(float(end)) for end in (values.min(), values.max()))
    return f", from {low} to {high}"


def _placed(label: str, values: Array, floor: float, log: bool, drawing: Drawing) -> Array:
    """Positions on the axis; on a log scale values up to zero are half a decade outside."""
    if not log:
        return values
    if low := int((values <= 0).sum()):
        whole = texts.counted(len(values), "draw")
        drawing.notes.append(
            f"{low} of {whole} of ‘{label}’ at or below zero, drawn at the left edge."
        )
    least = math.log10(floor) - 0.5
    return np.where(values > 0, np.log10(np.where(values > 0, values, 1.0)), least)


def _summary(row: Array, values: Array) -> str:
    if not len(row):
        return "no draws"
    return f"median {texts.number(float(np.median(values)))}, n = {len(row)}"


def _row(axes: Axes, top: float, each: Series, row: Array, edge: int, summary: str) -> None:
    """One label: ``row`` are its positions in order; the first ``edge`` are only at the edge."""
    width = WIDTH - 2 * SIDES
    name = texts.shortened(each.label, MOST_LETTERS)
    for x, text, ink, side in ((0, name, INK, "left"), (width, summary, MUTED, "right")):
        axes.annotate(
            text, (0, top + _NAME), xycoords=("axes pixels", "data"), xytext=(x, 0),
            textcoords="offset pixels", ha=side, va="center_baseline", color=ink,
            annotation_clip=False, parse_math=False,
        )  # fmt: skip
    if not len(row):
        return
    base = top + _BASE
    grid, height = density(row[edge:])
    if len(grid):
        up = base - _PEAK * height
        axes.fill_between(grid, base, up, color=each.ink, alpha=0.22, linewidth=0)
        axes.plot(grid, up, color=each.ink, linewidth=1.4, clip_on=False)
    axes.plot(row[[0, -1]], [base, base], color=each.ink, linewidth=1, clip_on=False)
    quartiles = np.quantile(row, (0.25, 0.75))
    axes.plot(quartiles, [base, base], color=each.ink, linewidth=4, solid_capstyle="butt")
    chosen = row[np.linspace(0, len(row) - 1, min(len(row), MOST_DOTS)).astype(int)]
    high, low = _DOTS
    # Spread evenly, and the same in every run: random positions would change the page.
    spread = top + high + (low - high) * ((np.arange(len(chosen)) + 0.5) * _GOLDEN % 1)
    put_dots(axes, np.column_stack([chosen, spread]), each.ink, 2.4, 0.5)
    middle = float(np.median(row))
    axes.plot([middle, middle], [base - 9, base + 5], color=INK, linewidth=2, clip_on=False)


def density(row: Array) -> tuple[Array, Array]:
    """A grid, and the density there of the values in ``row``, relative to its peak; or nothing."""
    if len(np.unique(row)) < FEW:
        return np.empty(0), np.empty(0)
    grid = np.linspace(row[0], row[-1], 120)
    try:
        height = stats.gaussian_kde(row[:: math.ceil(len(row) / 2000)])(grid)
    except (np.linalg.LinAlgError, ValueError):  # all but a few values are the same
        return np.empty(0), np.empty(0)
    peak = float(height.max())
    fine = math.isfinite(peak) and peak > 0
    return (grid, height / peak) if fine else (np.empty(0), np.empty(0))
