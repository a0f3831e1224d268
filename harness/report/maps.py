"""Maps of cosines: a small image within the drawing, in colours that suit light and dark."""

from __future__ import annotations

import base64
import math
import struct
import zlib

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from assay.harness.report import canvas, texts
from assay.harness.report.canvas import MUTED
from assay.harness.report.drawing import LETTERS, WIDTH, Drawing
from assay.harness.report.scales import Scale, frame, numbers, scale
from assay.harness.results.arrays import Array, Plot

MOST_CELLS = 256
"""Along one side; cells of a larger map are means over so many of its own."""

SHARP = 128
"""A map with at most so many cells is drawn with sharp edges between them."""

SIDE, LEFT, TOP, BOTTOM = 256, 46, 30, 42
BAR = (LEFT + SIDE + 14, 10)
"""Where the colour bar is, and how wide."""

LEVELS = 63
"""Steps of colour from 0 to 1: finer ones are not seen and would make the image larger."""

BELOW, ABOVE, LOST = (0xE0, 0x70, 0x1A), (0x2F, 0x7F, 0xD0), (0x80, 0x80, 0x80)
"""Orange and blue, which everybody tells apart; at zero either is transparent, so that the
page's own ground, light or dark, is the middle of the scale.  Grey: no number."""


def draw(plot: Plot, salt: str, drawing: Drawing) -> None:
    """Draw the first array of ``plot``, row 0 at the top, from -1 to 1."""
    label, array = next(iter(plot.arrays.items()), ("", np.empty((0, 0))))
    cells = numbers(array)
    if cells.ndim != 2 or not cells.size:
        return
    rows, columns = cells.shape
    small = shrunk(cells)
    finite = cells[np.isfinite(cells)]
    _note(cells, small, finite, drawing)
    sharp = max(small.shape) <= SHARP
    pictures = _image((LEFT, TOP, SIDE, SIDE), indices(small), sharp)
    ramp = np.linspace(1, -1, 2 * LEVELS + 1)[:, None]
    pictures += _image((BAR[0], TOP, BAR[1], SIDE), indices(ramp), False)
    size = (WIDTH, TOP + SIDE + BOTTOM)

    def fill(figure: Figure) -> None:
        axes = canvas.axes_within(figure, LEFT, TOP, WIDTH - LEFT - SIDE, BOTTOM)
        x = scale(np.array([0.0, columns]), plot.x, pad=0.0, whole=True)
        y = scale(np.array([0.0, rows]), plot.y, pad=0.0, whole=True)
        frame(axes, x, Scale(rows, 0, y.marks, y.name), grid=())
        for side in axes.spines.values():
            side.set(visible=True, color=MUTED, linewidth=0.8)
        for value, up in ((1, 1.0), (0, 0.5), (-1, 0.0)):
            axes.annotate(
                str(value).replace("-", "−"), (1, up), xycoords="axes fraction",
                xytext=(30, 0), textcoords="offset pixels", va="center_baseline",
                color=MUTED, annotation_clip=False,
            )  # fmt: skip

    text = canvas.draw(fill, "plot", size, LETTERS, salt, places=1)
    head, end, rest = text.partition(">")
    drawing.svg = f"{head}{end}{pictures}{rest}"
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


def shrunk(cells: Array, most: int = MOST_CELLS) -> Array:
    """``cells`` with at most ``most`` along a side: means of blocks, of what is finite there."""
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


def indices(cells: Array) -> NDArray[np.uint8]:
    """The place of each cell in the palette; the last is for what has no number."""
    steps = np.rint(np.clip(np.nan_to_num(cells), -1, 1) * LEVELS) + LEVELS
    return np.where(np.isfinite(cells), steps, 2 * LEVELS + 1).astype(np.uint8)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """An image of `indices`, one byte each, with their palette."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)

    height, width = pixels.shape
    # Every line begins with the number of its filter: none.
    lines = np.hstack([np.zeros((height, 1), np.uint8), pixels]).tobytes()
    amounts = np.abs(np.arange(-LEVELS, LEVELS + 1)) / LEVELS
    colours = [*[BELOW] * LEVELS, *[ABOVE] * (LEVELS + 1), LOST]
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", bytes(part for colour in colours for part in colour)),
            chunk(b"tRNS", bytes([*np.rint(amounts * 255).astype(int), 255])),
            chunk(b"IDAT", zlib.compress(lines, 9)),
            chunk(b"IEND", b""),
        )
    )


def _image(place: tuple[int, int, int, int], pixels: NDArray[np.uint8], sharp: bool) -> str:
    x, y, width, height = place
    data = base64.b64encode(png(pixels)).decode("ascii")
    look = ' style="image-rendering: pixelated"' if sharp else ""
    return (
        f'<image x="{x}" y="{y}" width="{width}" height="{height}"'
        f' preserveAspectRatio="none"{look} href="data:image/png;base64,{data}"></image>'
    )
