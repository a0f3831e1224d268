"""What the page shows of results beside its tables: counterexamples and pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from assay.harness.report import texts, words
from assay.harness.results.arrays import Plot
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Kind, Result, Verdict

CLASSES = {
    Verdict.UPHELD: "upheld",
    Verdict.REFUTED: "refuted",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.NOT_APPLICABLE: "absent",
}
"""The CSS classes of the verdicts."""

MOST_INPUTS = 20
MOST_INPUT = 3000
MOST_TEXT = 400
MOST_COMMAND = 20_000
MOST_ROWS = 40

MOST_BYTES = 1_500_000
"""Of all pictures of findings together; pictures beyond it are left out."""


def short(text: str) -> str:
    """``text`` as the page shows it: control characters escaped, and not too long."""
    return texts.visible(texts.clipped(text, MOST_TEXT))


def counterexample(row: Result) -> dict[str, Any]:
    """The counterexample of ``row``, all values as text."""
    example = words.counterexample(row)

    def shown(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [
            (short(label), texts.visible(texts.clipped(text, MOST_INPUT), "\n"))
            for label, text in pairs[:MOST_INPUTS]
        ]

    return {
        "id": texts.visible(row.id),
        "name": short(row.name),
        "subject": texts.visible(row.subject),
        "class": CLASSES[row.verdict],
        "inputs": shown(list(example.inputs.items())),
        "where": short(example.where),
        "observed": texts.power(example.observed),
        "allowed": texts.power(example.allowed),
        "times": _times(example.observed, example.allowed),
        "replay": texts.visible(texts.clipped(example.replay, MOST_COMMAND)),
    }


def _times(observed: float | None, allowed: float | None) -> str:
    """Observed over allowed, where that is informative."""
    if observed is None or allowed is None:
        return ""
    if not math.isfinite(observed) or not math.isfinite(allowed) or allowed <= 0:
        return ""
    times = observed / allowed
    return f"{times:,.0f}".replace(",", "\u202f") if 2 <= times < 1e7 else ""


def margins(run: RunRecord, groups: dict[str, list[Result]], room: int) -> list[dict[str, Any]]:
    """A picture of margins per subject; ``room`` is the number of rows in total."""
    # Matplotlib takes a second to load: only pages should wait for it.
    from assay.harness.report import pictures

    most = min(pictures.MOST_ROWS, max(4, room // max(1, len(groups))))
    drawings = []
    for index, (name, rows) in enumerate(groups.items()):
        drawable = pictures.drawable(rows)
        chosen = pictures.tightest(drawable, most)
        if not chosen:
            continue
        dtype = str(run.dtype_of(name) or "").removeprefix("torch.")
        drawings.append(
            {
                "subject": texts.visible(name),
                "label": _spoken(chosen),
                "svg": Markup(pictures.margins(chosen, dtype, f"m{index}")),
                "dtype": dtype if dtype in pictures.STEPS else "",
                "left_out": len(drawable) - len(chosen),
                "unfit": sum(_applied_law(row) for row in rows) - len(drawable),
            }
        )
    return drawings


def figures(groups: Mapping[str, Sequence[Result]], most: int = MOST_BYTES) -> dict[str, Any]:
    """The pictures of findings in ``groups``: figures by subject, while there is room.

    ``left_out`` says how many had none, ``bytes`` how large the others are together.  The rows
    of all groups are numbered in their order: a figure has the ``anchor`` of its row.
    """
    shown: dict[str, Any] = {"subjects": [], "left_out": 0, "bytes": 0}
    rows = ((subject, row) for subject, rows in groups.items() for row in rows)
    drawn: dict[str, list[dict[str, Any]]] = {}
    for number, (subject, row) in enumerate(rows):
        for index, plot in enumerate(row.plots):
            figure = None if shown["left_out"] else _figure(row, plot, f"f{number}p{index}")
            amount = len(str(figure["svg"] or figure["rows"]).encode()) if figure else 0
            if figure is None or shown["bytes"] + amount > most:
                shown["left_out"] += 1
                continue
            shown["bytes"] += amount
            drawn.setdefault(texts.visible(subject), []).append(figure | {"anchor": f"c{number}"})
    return shown | {"subjects": list(drawn.items())}


def _figure(row: Result, plot: Plot, salt: str) -> dict[str, Any]:
    """A picture, or a table of text, with the result that it belongs to."""
    title = short(plot.title) or "untitled"
    figure: dict[str, Any] = {"title": title, "label": "", "svg": "", "notes": [], "rows": []}
    if plot.kind == "table":
        lines = [plot.columns, *plot.rows[:MOST_ROWS]]
        figure["rows"] = [[short(str(cell)) for cell in line] for line in lines if line]
    else:
        # Matplotlib takes a second to load: only pages with pictures should wait.
        from assay.harness.report import pictures

        drawing = pictures.draw(plot, salt)
        spoken = " ".join([f"{title}.", *drawing.words])
        figure["label"] = texts.visible(texts.clipped(spoken, 2000))
        figure["svg"] = Markup(drawing.svg)
        figure["notes"] = [short(note) for note in drawing.notes]
    return figure | {
        "id": texts.visible(row.id),
        "name": short(row.name),
        "verdict": str(row.verdict),
        "class": CLASSES[row.verdict],
        "symbol": words.SYMBOLS[row.verdict],
    }


def _applied_law(row: Result) -> bool:
    return row.kind is Kind.LAW and row.verdict is not Verdict.NOT_APPLICABLE


def _spoken(rows: list[Result]) -> str:
    """A description of the picture, for screen readers."""
    least = min(rows, key=lambda row: row.margin or 0.0)
    beyond = sum((row.margin or 0.0) < 0 for row in rows)
    return texts.visible(
        f"Observed and allowed difference of {texts.counted(len(rows), 'law')} on a log scale."
        f" {beyond or 'None'} beyond what is allowed. The least margin in decades,"
        f" {texts.decades(least)}, is that of {least.id}. The table of verdicts has the numbers."
    )
