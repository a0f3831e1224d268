"""Rows of the page's tables: a law with its margin in decades, a finding with its interval."""

from __future__ import annotations

import re
from typing import Any

from assay.harness.checking import significance
from assay.harness.report import controls, exhibits, intervals, texts, words
from assay.harness.results import bibliography
from assay.harness.results.verdicts import Kind, Result, Verdict

BAR_DECADES = (1.5, 3.0)
"""The range of the bar in the table, beyond the bound and within it."""

BOUND_AT = 100 * BAR_DECADES[0] / sum(BAR_DECADES)
"""The position of the bound in that bar, in percent of its width."""

_LIMITS = re.compile("([≥>≤<]) ")
"""A sign and its limit stay on one line."""


def cells(index: int, row: Result, judgements: words.Judgements) -> dict[str, Any]:
    """The cells of a result: those of both tables, and those of its kind's table."""
    applies = row.verdict is not Verdict.NOT_APPLICABLE
    keys = [
        index,
        intervals.real(row.margin),
        intervals.real(row.observed),
        intervals.real(row.bound),
    ]
    keys += [row.examples, intervals.real(row.seconds)] if applies else [None, None]
    return {
        "anchor": f"c{index}",
        "id": texts.visible(row.id),
        "name": exhibits.short(row.name),
        "kind": str(row.kind),
        "subject": texts.visible(row.subject),
        "verdict": str(row.verdict),
        "class": exhibits.CLASSES[row.verdict],
        "symbol": words.SYMBOLS[row.verdict],
        "applies": applies,
        "reason": exhibits.short(row.reason),
        "judgement": exhibits.short(judgements.get((row.name, row.subject), "")),
        "examples": row.examples,
        "seconds": texts.duration(row.seconds),
        "sources": sources(row.source),
        "order": "|".join("" if key is None else f"{key:.6g}" for key in keys),
        **(_finding(row) if row.kind is Kind.FINDING else _law(row)),
    }


def together(p: float | None) -> str:
    """A finding's outcome when all of the run are judged together; empty for other results."""
    if p is None:
        return ""
    verdict = "stands" if p <= significance.ERROR else "does not stand"
    return f"{verdict} among all findings: adjusted p {texts.number(p)}"


def sources(source: str) -> list[tuple[str, str]]:
    """A source in pieces (text, key): a work's title has its key, other text an empty one."""
    return [(texts.visible(text), key) for text, key in bibliography.pieces(source) if text]


def _law(row: Result) -> dict[str, Any]:
    return {
        "margin": texts.decades(row).replace("-", "−"),
        "bar": _bar(row.margin),
        "observed": texts.power(row.observed),
        "bound": texts.power(row.bound),
        "controls": [(exhibits.short(n), exhibits.short(text)) for n, text in controls.lines(row)],
    }


def _finding(row: Result) -> dict[str, Any]:
    value, interval = intervals.estimate(row.observed, row.interval)
    control = intervals.control(row)
    return {
        "margin": intervals.clearance(row).replace("-", "−"),
        "strip": _strip(row),
        "observed": value.replace("-", "−"),
        "interval": interval.replace("-", "−"),
        "bound": _LIMITS.sub("\\1\u00a0", exhibits.short(intervals.claimed(row))),
        "control": None
        if control is None
        else {
            "value": control.value.replace("-", "−"),
            "words": exhibits.short(control.words),
            "must": exhibits.short(control.must),
        },
        "recorded": [(exhibits.short(name), median) for name, median in intervals.recorded(row)],
    }


def _strip(row: Result) -> dict[str, Any] | None:
    """The positions of `intervals.strip` in percent of the picture's width."""
    positions = intervals.strip(row)
    if positions is None:
        return None

    def percent(position: Any) -> Any:
        if isinstance(position, tuple):
            return [percent(each) for each in position]
        return position if position is None else round(100 * position, 1)

    percents = {name: percent(position) for name, position in vars(positions).items()}
    return percents | {"beyond": positions.beyond}


def _bar(margin: float | None) -> dict[str, float] | None:
    """The start and length of the bar, in percent of its room."""
    margin = intervals.real(margin)
    if margin is None:
        return None
    beyond, within = BAR_DECADES
    end = BOUND_AT + 100 * max(-beyond, min(within, margin)) / sum(BAR_DECADES)
    left, right = sorted((BOUND_AT, end))
    return {"left": round(left, 1), "width": round(right - left, 1)}
