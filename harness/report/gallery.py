"""The pictures of findings on the page: drawn, named, and described in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from assay.harness.report import exhibits, texts, words
from assay.harness.results.arrays import Plot
from assay.harness.results.verdicts import Result

MOST_BYTES = 1_500_000
"""Of all pictures together; pictures beyond it are left out."""

MOST_NOTES = 6
MOST_ROWS = 40


@dataclass
class Gallery:
    """Figures by subject, for the template, and how many had no room."""

    subjects: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    left_out: int = 0
    bytes: int = 0


def gallery(groups: Mapping[str, Sequence[Result]], most: int = MOST_BYTES) -> Gallery:
    """The pictures of the results in ``groups``, by subject, while there is room."""
    pictures = Gallery()
    number = 0
    for subject, rows in groups.items():
        figures: list[dict[str, Any]] = []
        for row in rows:
            for plot in row.plots:
                figure = None if pictures.left_out else _figure(row, plot, f"f{number}")
                number += 1
                amount = len(str(figure["svg"] or figure["rows"]).encode()) if figure else 0
                if figure is None or pictures.bytes + amount > most:
                    pictures.left_out += 1
                    continue
                pictures.bytes += amount
                figures.append(figure)
        if figures:
            pictures.subjects.append((texts.visible(subject), figures))
    return pictures


def _figure(row: Result, plot: Plot, salt: str) -> dict[str, Any]:
    if plot.kind == "table":
        return _table(row, plot)
    # Matplotlib and scipy take a second to load: only pages with pictures should wait.
    from assay.harness.report import plots

    drawing = plots.draw(plot, salt)
    title = exhibits.short(plot.title) or "untitled"
    description = " ".join([f"{title}.", *drawing.spoken])
    return {
        "of": id(row),
        "title": title,
        "label": texts.visible(texts.clipped(description, 2000)),
        "svg": Markup(drawing.svg),
        "legend": [
            {"label": exhibits.short(entry.label), "note": entry.note, "colour": entry.colour,
             "dashed": entry.dashed}
            for entry in drawing.legend
        ],
        "notes": [exhibits.short(note) for note in drawing.notes[:MOST_NOTES]],
        "rows": [],
        **_caption(row),
    }  # fmt: skip


def _table(row: Result, plot: Plot) -> dict[str, Any]:
    """A table of text in place of a picture."""
    return {
        "of": id(row),
        "title": exhibits.short(plot.title) or "untitled",
        "svg": "",
        "label": "",
        "legend": [],
        "notes": [],
        "columns": [exhibits.short(str(column)) for column in plot.columns],
        "rows": [[exhibits.short(str(cell)) for cell in cells] for cells in plot.rows[:MOST_ROWS]],
        **_caption(row),
    }


def _caption(row: Result) -> dict[str, str]:
    """The result that a figure belongs to."""
    return {
        "id": texts.visible(row.id),
        "name": exhibits.short(row.name),
        "verdict": str(row.verdict),
        "class": exhibits.CLASSES[row.verdict],
        "symbol": words.SYMBOLS[row.verdict],
    }
