"""Rows of the page's tables: a law with its margin in decades, a finding with its interval."""

from __future__ import annotations

import re
from typing import Any

from assay.harness.checking import significance
from assay.harness.report import controls, exhibits, intervals, texts, words
from assay.harness.results import bibliography
from assay.harness.results.verdicts import Kind, Result, Verdict

BAR_DECADES = (1.5, 3.0)
"""What the bar in the table has room for, beyond the bound and within it."""

BOUND_AT = 100 * BAR_DECADES[0] / sum(BAR_DECADES)
"""Where the bound is in that bar, in percent of its width."""

_LIMITS = re.compile("([≥>≤<]) ")
"""A sign and its limit stay on one line."""


def cells(index: int, row: Result, judgements: words.Judgements) -> dict[str, Any]:
    """What both tables show of a result, and what only the one of its kind does."""
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
    """What a finding comes to when all of the run are judged together; empty for all else."""
    if p is None:
        return ""
    verdict = "stands" if p <= significance.ERROR else "does not stand"
    return f"{verdict} among all findings: adjusted p {texts.number(p)}"


def sources(source: str) -> list[tuple[str, str]]:
    """A source in pieces (text, key): a work's title has its key, all else an empty one."""
    return [(texts.visible(text), key) for text, key in bibliography.pieces(source) if text]


def _law(row: Result) -> dict[str, Any]:
    return {
        "margin": texts.decades(row).replace("-", "−"),
        "bar": _bar(row.margin),
        "observed": texts.power(row.observed),
        "bound": texts.power(row.bound),
        "controls": [(exhibits.short(n), exhibits.short(said)) for n, said in controls.lines(row)],
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
            "told": control.told.replace("-", "−"),
            "words": exhibits.short(control.words),
            "must": exhibits.short(control.must),
        },
        "recorded": [(exhibits.short(name), told) for name, told in intervals.recorded(row)],
    }


def _strip(row: Result) -> dict[str, Any] | None:
    """The places of `intervals.strip` in percent of the picture's width."""
    places = intervals.strip(row)
    if places is None:
        return None

    def percent(place: Any) -> Any:
        if isinstance(place, tuple):
            return [percent(each) for each in place]
        return place if place is None else round(100 * place, 1)

    told = {name: percent(place) for name, place in vars(places).items()}
    return told | {"beyond": places.beyond}


def _bar(margin: float | None) -> dict[str, float] | None:
    """Where the bar begins and how long it is, in percent of its room."""
    margin = intervals.real(margin)
    if margin is None:
        return None
    beyond, within = BAR_DECADES
    end = BOUND_AT + 100 * max(-beyond, min(within, margin)) / sum(BAR_DECADES)
    left, right = sorted((BOUND_AT, end))
    return {"left": round(left, 1), "width": round(right - left, 1)}
