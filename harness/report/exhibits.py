"""Details of single results on the page: counterexamples and pictures of margins."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup

from assay.harness.report import texts, words
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Kind, Result, Verdict

CLASSES = {
    Verdict.UPHELD: "upheld",
    Verdict.REFUTED: "refuted",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.NOT_APPLICABLE: "absent",
}
"""How the page's style calls the verdicts."""

MOST_INPUTS = 20
MOST_INPUT = 3000
MOST_TEXT = 400
MOST_COMMAND = 20_000


def short(text: str) -> str:
    """``text`` as the page shows it: without what cannot be seen, and not too long."""
    return texts.visible(texts.clipped(text, MOST_TEXT))


def counterexample(row: Result) -> dict[str, Any]:
    """The counterexample of ``row``, whatever it holds, as text."""
    seen = words.seen(row)

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
        "inputs": shown(list(seen.inputs.items())),
        "where": short(seen.where),
        "observed": texts.power(seen.observed),
        "allowed": texts.power(seen.allowed),
        "times": _times(seen.observed, seen.allowed),
        "others": shown(words.other_entries(seen)),
        "replay": texts.visible(texts.clipped(seen.replay, MOST_COMMAND)),
    }


def _times(observed: float | None, allowed: float | None) -> str:
    """How many times the allowed was seen, where that says something."""
    if observed is None or allowed is None:
        return ""
    if not math.isfinite(observed) or not math.isfinite(allowed) or allowed <= 0:
        return ""
    times = observed / allowed
    return f"{times:,.0f}".replace(",", "\u202f") if 2 <= times < 1e7 else ""


def margins(run: RunRecord, groups: dict[str, list[Result]], room: int) -> list[dict[str, Any]]:
    """A picture per subject, both layouts of it; ``room`` is for how many rows in all."""
    # Matplotlib takes a second to load: only who wants a page should wait for it.
    from assay.harness.report import pictures

    most = min(pictures.MOST_ROWS, max(4, room // max(1, len(groups))))
    told = []
    for index, (name, rows) in enumerate(groups.items()):
        fit = pictures.drawable(rows)
        drawn = pictures.tightest(fit, most)
        if not drawn:
            continue
        dtype = str(run.dtype or "")
        told.append(
            {
                "subject": texts.visible(name),
                "label": _spoken(drawn),
                "drawings": [
                    Markup(pictures.margins(drawn, dtype, layout, f"p{index}{layout.name}"))
                    for layout in (pictures.WIDE, pictures.NARROW)
                ],
                "left_out": len(fit) - len(drawn),
                "unfit": sum(_applied_law(row) for row in rows) - len(fit),
            }
        )
    return told


def _applied_law(row: Result) -> bool:
    return row.kind is Kind.LAW and row.verdict is not Verdict.NOT_APPLICABLE


def _spoken(rows: list[Result]) -> str:
    """What the picture shows, for those who do not see it."""
    least = min(rows, key=lambda row: row.margin or 0.0)
    beyond = sum((row.margin or 0.0) < 0 for row in rows)
    return texts.visible(
        f"Observed and allowed difference of {texts.counted(len(rows), 'law')} on a log scale."
        f" {beyond or 'None'} beyond what is allowed. The least margin in decades,"
        f" {texts.decades(least)}, is that of {least.id}. The table of verdicts has the numbers."
    )
