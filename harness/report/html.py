"""One page of HTML about a run: self-contained, offline, readable without its script.

This module computes its contents; the template only lays them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from assay.harness.checking import significance
from assay.harness.report import closing, exhibits, page_rows, templates, texts, words
from assay.harness.report.intervals import real
from assay.harness.report.words import Judgements
from assay.harness.results import bibliography
from assay.harness.results.records import RunRecord, SubjectRecord
from assay.harness.results.verdicts import Kind, Result, Verdict

MOST_BYTES = 2_000_000
"""A larger page, without the findings' pictures (see `exhibits.MOST_BYTES`), is laid out again
with fewer rows and pictures."""

LEAST_SHARE = 0.05

# These keep the page small for any run; the JSON has the rest.
MOST_ROWS = 1500
MOST_DRAWN = 480
MOST_COUNTEREXAMPLES = 60

MOST_DETAILED = 20
"""A page of more models leaves out the margins, missing capabilities and digests of each."""

ORDER = (Verdict.REFUTED, Verdict.INCONCLUSIVE, Verdict.UPHELD, Verdict.NOT_APPLICABLE)
"""The verdicts from the worst to the least telling."""


def render(
    run: RunRecord,
    results: Sequence[Result],
    judgements: Judgements | None = None,
) -> str:
    """The page as text; everything that comes from the run is escaped."""
    share = 1.0
    figures = exhibits.figures(words.by_subject(run, results))
    while True:
        values = page_values(run, results, judgements or {}, share, figures)
        page = templates.render("page", scripts=["page.js"], page=values)
        if share < LEAST_SHARE or len(page.encode()) <= MOST_BYTES + figures["bytes"]:
            return page
        share /= 2


def page_values(
    run: RunRecord,
    results: Sequence[Result],
    judgements: Judgements,
    share: float,
    figures: dict[str, Any],
) -> dict[str, Any]:
    """The template's values, as text, numbers and lists of them.

    Rows, pictures of margins and counterexamples get ``share`` of their usual room;
    ``figures`` are the findings' pictures (`exhibits.figures`).
    """
    groups = words.by_subject(run, results)
    detailed = groups if len(groups) <= MOST_DETAILED else {}
    ordered = [row for subject_rows in groups.values() for row in subject_rows]
    indices = sorted(_worst_first(ordered)[: int(share * MOST_ROWS)])
    adjusted = significance.adjusted(ordered)
    rows = [
        page_rows.cells(i, ordered[i], judgements)
        | {"together": page_rows.together(adjusted.get(i))}
        for i in indices
    ]
    broken = [row for row in ordered if row.counterexample is not None]
    chosen = broken[: int(share * MOST_COUNTEREXAMPLES)]
    return {
        "headline": texts.visible(words.headline(ordered, run)),
        "asides": [
            texts.visible(line)
            for line in (
                *closing.lines(run, ordered),
                *words.asides(run, ordered),
                significance.summary(ordered),
            )
            if line
        ],
        "facts": _facts(run, ordered),
        "verdicts": [
            {"name": str(verdict), "class": exhibits.CLASSES[verdict], "count": count}
            | {"symbol": words.SYMBOLS[verdict]}
            for verdict, count in words.tally(ordered).items()
        ],
        "subjects": [
            {
                "name": texts.visible(name),
                "shape": _shape(run, name),
                "tiles": [row for row in rows if row["subject"] == texts.visible(name)],
            }
            for name in groups
        ],
        "matrix": _matrix(run, groups, {id(ordered[i]): f"c{i}" for i in indices}),
        "undetailed": not detailed,
        "tables": _tables(rows),
        "rows": len(rows),
        "rows_left_out": len(ordered) - len(rows),
        "counterexamples": [exhibits.counterexample(row) for row in chosen],
        "counterexamples_left_out": len(broken) - len(chosen),
        "pictures": exhibits.margins(run, detailed, int(share * MOST_DRAWN)),
        "figures": figures,
        "anchors": {row["anchor"] for row in rows},
        "absent": _all_absent(detailed),
        "environment": _environment(run, len(groups) <= MOST_DETAILED),
        "works": [
            {
                name: texts.visible(getattr(work, name))
                for name in ("key", "title", "author", "address")
            }
            for work in bibliography.works(row.source for row in ordered)
        ],
        "bound_at": round(page_rows.BOUND_AT, 1),
        "meanings": words.MEANINGS,
    }


def _tables(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows by kind; a kind without rows is left out."""
    tables = [
        {"kind": kind.value, "rows": [row for row in rows if row["kind"] == kind.value]}
        for kind in Kind
    ]
    return [table for table in tables if table["rows"]]


def _worst_first(results: list[Result]) -> list[int]:
    """Indices of ``results``: refuted ones first, those that do not apply last."""

    def badness(i: int) -> tuple[int, float]:
        return ORDER.index(results[i].verdict), real(results[i].margin) or 0.0

    return sorted(range(len(results)), key=badness)


def _facts(run: RunRecord, results: list[Result]) -> list[tuple[str, str]]:
    started = str(run.started or "")
    facts = {
        "Run": started[:16].replace("T", " ") + (" UTC" if started else ""),
        "Profile": run.profile,
        "Precision": run.dtype,
        "Device": run.device,
        "Inputs tried": f"{sum(row.examples for row in results):,}".replace(",", "\u202f"),
        "Time": texts.duration(sum(real(row.seconds) or 0.0 for row in results)),
    }
    return [(name, texts.visible(str(value), "\u202f")) for name, value in facts.items() if value]


def _shape(run: RunRecord, name: str) -> str:
    return texts.visible(words.shape(run.subjects.get(name) or SubjectRecord()))


def _matrix(
    run: RunRecord, groups: dict[str, list[Result]], anchors: dict[int, str]
) -> dict[str, Any] | None:
    """The verdicts of several models: a row for each, a column for each claim's number.

    Of a claim's variants the worst verdict counts.  ``anchors`` are those of the results in the
    tables, by `id`.
    """
    if len(groups) < 2:
        return None
    claims = {row.id: row for rows in groups.values() for row in rows}
    columns = sorted(claims.values(), key=words.catalogue_order)
    counts: Counter[tuple[Verdict, str]] = Counter()
    lines = []
    for name, rows in groups.items():
        worst: dict[str, Result] = {}
        for row in sorted(rows, key=lambda each: ORDER.index(each.verdict)):
            worst.setdefault(row.id, row)
        counts.update((row.verdict, row.id) for row in worst.values())
        cells = [_cell(worst.get(claim.id), anchors) for claim in columns]
        lines.append({"name": texts.visible(name), "shape": _shape(run, name), "cells": cells})
    return {
        "claims": [
            {"id": texts.visible(each.id), "name": exhibits.short(each.name.partition(" [")[0])}
            for each in columns
        ],
        "counts": [(str(v), [counts[v, claim.id] or "" for claim in columns]) for v in Verdict],
        "rows": lines,
    }


def _cell(row: Result | None, anchors: dict[int, str]) -> dict[str, str] | None:
    if row is None:
        return None
    shape = "" if row.kind is Kind.LAW else " found"
    return {
        "class": exhibits.CLASSES[row.verdict] + shape,
        "symbol": words.SYMBOLS[row.verdict],
        "anchor": anchors.get(id(row), ""),
    }


def _all_absent(groups: dict[str, list[Result]]) -> list[dict[str, Any]]:
    """Per subject the reasons, each with the claims (id, name) that do not apply for it."""
    subjects = []
    for subject, rows in groups.items():
        reasons: dict[str, list[tuple[str, str]]] = {}
        for row in rows:
            if row.verdict is Verdict.NOT_APPLICABLE:
                why = exhibits.short(row.reason or "no reason given")
                claim = (texts.visible(row.id), exhibits.short(row.name))
                reasons.setdefault(why, []).append(claim)
        if reasons:
            subjects.append({"subject": texts.visible(subject), "reasons": list(reasons.items())})
    return subjects


def _environment(run: RunRecord, detailed: bool) -> dict[str, Any]:
    """The run's settings and versions; ``detailed``, those of its models as well."""
    entries: dict[str, object] = {
        "Run": run.id,
        "Started": texts.moment(run.started) or None,
        "Finished": texts.moment(run.finished) or "not finished",
        "Exit code": run.exit,
        "Suite": run.suite,
        "Profile": run.profile,
        "Seed": run.seed,
        "Device": run.device,
        "Precision": run.dtype,
        "Attention": run.attention,
        "Emulated rounding": run.rounding,
        "Allocation": run.allocation,
        "Threads": run.threads,
        "Platform": run.platform,
    }
    entries |= run.versions
    return {
        "facts": [(n, texts.visible(str(v))) for n, v in entries.items() if v not in (None, "")],
        "subjects": [
            {
                "name": texts.visible(name),
                "facts": [
                    ("Architecture", texts.visible(words.shape(facts)) or "–"),
                    ("SHA-256 of configuration and weights", facts.digest or "–"),
                    ("Capabilities", ", ".join(map(str, facts.capabilities or ["–"]))),
                    *(
                        ("Not honoured", exhibits.short(line))
                        for line in words.not_honoured(facts, all_of_them=True)
                    ),
                ],
                "missing": [
                    (exhibits.short(str(what)), exhibits.short(str(why)))
                    for what, why in facts.missing.items()
                ],
            }
            for name, facts in (run.subjects.items() if detailed else ())
        ],
    }
