"""Draws the pictures of findings from their stored arrays, by kind (`Plot`)."""

from __future__ import annotations

from collections.abc import Callable

from assay.harness.report import distributions, lines, maps, texts
from assay.harness.report.drawing import Drawing
from assay.harness.results.arrays import Plot

KINDS: dict[str, Callable[[Plot, str, Drawing], None]] = {
    "map": maps.draw,
    "histograms": lines.histograms,
    "scatter": lines.scatter,
    "distributions": distributions.draw,
    "curves": lines.curves,
}


def draw(plot: Plot, salt: str) -> Drawing:
    """``plot`` as a drawing; where there is nothing to draw it has notes and no ``svg``.

    ``salt`` keeps its ids apart from those of other pictures on the page.
    """
    drawing = Drawing()
    if plot.kind not in KINDS:
        kind = texts.visible(texts.clipped(plot.kind, 40))
        drawing.notes.append(f"Unknown kind of picture: ‘{kind}’.")
        return drawing
    KINDS[plot.kind](plot, salt, drawing)
    if not drawing.svg:
        drawing.notes.append("There is nothing to draw.")
    return drawing
