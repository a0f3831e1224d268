"""Draws maps of cosines: a small image in the drawing, in colours that suit light and dark."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from assay.harness.report import canvas, texts
from assay.harness.report.canvas import MUTED
from assay.harness.report.drawing import LETTERS, WIDTH, Drawing
from assay.harness.report.scales import frame, numbers
from assay.harness.results.arrays import Array, Plot

MOST_CELLS = 256
"""The most cells along a side; cells of a larger map are means over blocks."""

SIDE, LEFT, TOP, BOTTOM, BAR = 256, 46, 30, 42, 10

LEVELS = 63
"""Steps of colour from 0 to 1: finer ones are invisible and would make the image larger."""

END = 1 + 0.5 / LEVELS
"""Where the scale ends, so that the middle of a step is a whole number of levels."""

BELOW, ABOVE, LOST = "#e0701a", "#2f7fd0", "#808080"
"""Orange and blue, which everybody can distinguish; at zero either is transparent, so that the
page's own ground, light or dark, is the middle of the scale.  Grey: no number."""

COLOURS = ListedColormap(
    [(BELOW if step < 0 else ABOVE, abs(step) / LEVELS) for step in range(-LEVELS, LEVELS + 1)]
).with_extremes(bad=LOST)


def draw(plot: Plot, salt: str, drawing: Drawing) -> None:
    """Draw the first array of ``plot``, row 0 at the top, from -1 to 1."""
    label, array = next(iter(plot.arrays.items()), ("", np.empty((0, 0))))
    cells = numbers(array)
    if cells.ndim != 2 or not cells.size:
        return
    rows, columns = cells.shape
    small = shrink(cells)
    finite = cells[np.isfinite(cells)]
    _note(cells, small, finite, drawing)
    size = (WIDTH, TOP + SIDE + BOTTOM)

    def fill(figure: Figure) -> None:
        axes = canvas.axes_within(figure, LEFT, TOP, WIDTH - LEFT - SIDE, BOTTOM)
        right = LEFT + SIDE + 14
        bar = canvas.axes_within(figure, right, TOP, WIDTH - right - BAR, BOTTOM)
        ramp = np.linspace(1, -1, 2 * LEVELS + 1)[:, None]
        whole, scale = (0, columns, rows, 0), (0, 1, -1, 1)
        for where, values, extent in ((axes, small, whole), (bar, ramp, scale)):
            where.imshow(
                values, COLOURS, aspect="auto", interpolation="none", vmin=-END, vmax=END,
                extent=extent,
            )  # fmt: skip
        frame(axes, plot.x, plot.y, grid=(), whole=True)
        bar.yaxis.tick_right()
        bar.set(xticks=[], yticks=[-1, 0, 1])
        bar.tick_params(length=0, labelcolor=MUTED)
        for side in (*axes.spines.values(), *bar.spines.values()):
            side.set(visible=side.axes is axes, color=MUTED, linewidth=0.8)

    drawing.svg = canvas.draw(fill, "plot", size, LETTERS, salt, decimals=1)
    least, most = (texts.number(f(finite)) if finite.size else "–" for f in (np.min, np.max))
    name = f"{texts.visible(label)}: " if label else ""
    drawing.spoken.append(f"{name}{rows} × {columns} values from {least} to {most}.")


def _note(cells: Array, small: Array, finite: Array, drawing: Drawing) -> None:
    block = [math.ceil(a / b) for a, b in zip(cells.shape, small.shape, strict=True)]
    if max(block) > 1:
        drawing.notes.append(f"A dot is the mean of {block[0]} × {block[1]} values.")
    if lost := cells.size - finite.size:
        drawing.notes.append(f"{lost} of {cells.size} values are not finite (grey).")
    if finite.size and np.abs(finite).max() > 1 + 1e-6:
        drawing.notes.append("Values beyond ±1 have the colours of the ends.")


def shrink(cells: Array, most: int = MOST_CELLS) -> Array:
    """``cells`` with at most ``most`` along a side: means of the finite values in blocks."""
    finite = np.isfinite(cells)
    total, amount = np.where(finite, cells, 0.0), finite.astype(np.float64)
    for axis, length in enumerate(cells.shape):
        if length > most:
            width = math.ceil(length / most)
            starts = np.arange(0, length, width)
            total = np.add.reduceat(total, starts, axis=axis)
            amount = np.add.reduceat(amount, starts, axis=axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(total / amount, dtype=np.float64)
