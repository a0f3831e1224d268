"""Draws every picture in the same way: in pixels, the reader's fonts, the page's colours."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from assay.harness.report import svg

INK, MUTED, LINE, TINT = (svg.COLOURS[name] for name in ("ink", "muted", "line", "tint"))

_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def draw(
    paint: Callable[[Figure], None],
    kind: str,
    size: tuple[int, int],
    letters: float,
    salt: str,
    decimals: int = 2,
) -> str:
    """An inline ``<svg>`` of class ``kind``, ``size`` pixels large, that ``paint`` fills.

    ``letters`` is the size of its type; its coordinates have ``decimals`` decimals.
    ``salt`` keeps its ids apart from those of other pictures on the page.  The text is text and
    the colours are the page's CSS variables; the output depends on the arguments alone.
    """
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.family": svg.FONT,
        "font.size": letters,
        "path.simplify": False,
    }
    with rc_context(settings), warnings.catch_warnings():
        # The reader's fonts draw the text, so what matplotlib's lacks does not matter.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), dpi=72)
        FigureCanvasSVG(figure)
        paint(figure)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata=_NO_METADATA)
    return svg.inline(stream.getvalue(), kind, size, letters, decimals)


def axes_within(figure: Figure, left: float, top: float, right: float, bottom: float) -> Axes:
    """Axes of ``figure`` that leave these numbers of pixels free at its sides."""
    across, up = (inches * 72 for inches in figure.get_size_inches())
    room = 1 - (left + right) / across, 1 - (top + bottom) / up
    return figure.add_axes((left / across, bottom / up, *room))
