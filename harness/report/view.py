"""What the page shows, worked out beforehand: the template only lays it out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from harness.report import words
from harness.verdicts import Result, Verdict

CLASSES = {
    Verdict.UPHELD: "upheld",
    Verdict.REFUTED: "refuted",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.NOT_APPLICABLE: "absent",
}

# These keep the page small, whatever the run was like; what they leave out is in the JSON.
MOST_ROWS = 1500
MOST_DRAWN = 480
MOST_COUNTEREXAMPLES = 60
MOST_INPUTS = 20
MOST_INPUT = 3000
MOST_TEXT = 400
MOST_COMMAND = 20_000

BAR_DECADES = (1.5, 3.0)
"""What the bar in the table has room for, beyond the bound and within it."""

BOUND_AT = 100 * BAR_DECADES[0] / sum(BAR_DECADES)
"""Where the bound is in that bar, in percent of its width."""


def page(
    run: dict[str, Any],
    results: Sequence[Result],
    judgements: Mapping[tuple[str, str], str],
    share: float = 1.0,
) -> dict[str, Any]:
    """Everything that the template needs, as text, numbers and lists of them.

    ``share`` of the usual room is given to rows, pictures and counterexamples.
    """
    groups = words.by_subject(run, results)
    ordered = [row for rows in groups.values() for row in rows]
    shown = _worst_first(ordered)[: int(share * MOST_ROWS)]
    places = {id(row): i for i, row in enumerate(ordered)}
    shown.sort(key=lambda row: places[id(row)])
    rows = [_row(i, row, judgements) for i, row in enumerate(shown)]
    broken = [row for row in ordered if row.counterexample is not None]
    told = broken[: int(share * MOST_COUNTEREXAMPLES)]
    return {
        "headline": words.visible(words.headline(ordered)),
        "asides": [words.visible(line) for line in words.asides(run, ordered)],
        "facts": _facts(run, ordered),
        "verdicts": [
            {"name": str(verdict), "class": CLASSES[verdict], "count": count}
            | {"symbol": words.SYMBOLS[verdict]}
            for verdict, count in words.tally(ordered).items()
        ],
        "subjects": [_subject(i, name, run, groups[name], rows) for i, name in enumerate(groups)],
        "rows": rows,
        "rows_left_out": len(ordered) - len(shown),
        "counterexamples": [_counterexample(row) for row in told],
        "counterexamples_left_out": len(broken) - len(told),
        "pictures": _pictures(run, groups, int(share * MOST_DRAWN)),
        "absent": _all_absent(groups),
        "environment": _environment(run),
        "bound_at": round(BOUND_AT, 1),
        "meanings": words.MEANINGS,
    }


def _worst_first(rows: list[Result]) -> list[Result]:
    order = [Verdict.REFUTED, Verdict.INCONCLUSIVE, Verdict.UPHELD, Verdict.NOT_APPLICABLE]
    return sorted(rows, key=lambda row: (order.index(row.verdict), _finite(row.margin) or 0.0))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _row(index: int, row: Result, judgements: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    applies = row.verdict is not Verdict.NOT_APPLICABLE
    keys = [index, _finite(row.margin), _finite(row.observed), _finite(row.bound)]
    keys += [row.examples, _finite(row.seconds)] if applies else [None, None]
    low_high = "\u00a0…\u00a0".join(map(words.power, row.interval or ()))
    return {
        "anchor": f"c{index}",
        "id": words.visible(row.id),
        "name": _text(row.name),
        "kind": str(row.kind),
        "subject": words.visible(row.subject),
        "verdict": str(row.verdict),
        "class": CLASSES[row.verdict],
        "symbol": words.SYMBOLS[row.verdict],
        "applies": applies,
        "reason": _text(row.reason),
        "judgement": _text(judgements.get((row.id, row.subject), "")),
        "margin": words.decades(row).replace("-", "−"),
        "bar": _bar(row.margin),
        "observed": words.power(row.observed),
        "interval": low_high,
        "bound": words.power(row.bound),
        "examples": row.examples,
        "seconds": words.duration(row.seconds),
        "order": "|".join("" if key is None else f"{key:.6g}" for key in keys),
    }


def _bar(margin: float | None) -> dict[str, float] | None:
    """Where the bar begins and how long it is, in percent of its room."""
    margin = _finite(margin)
    if margin is None:
        return None
    beyond, within = BAR_DECADES
    end = BOUND_AT + 100 * max(-beyond, min(within, margin)) / sum(BAR_DECADES)
    left, right = sorted((BOUND_AT, end))
    return {"left": round(left, 1), "width": round(right - left, 1)}


def _facts(run: dict[str, Any], rows: list[Result]) -> list[tuple[str, str]]:
    started = str(run.get("started") or "")
    told = {
        "Run": started[:16].replace("T", " ") + (" UTC" if started else ""),
        "Profile": run.get("profile"),
        "Precision": run.get("dtype"),
        "Device": run.get("device"),
        "Inputs tried": f"{sum(row.examples for row in rows):,}".replace(",", "\u202f"),
        "Time": words.duration(sum(_finite(row.seconds) or 0.0 for row in rows)),
    }
    return [(name, words.visible(str(value), "\u202f")) for name, value in told.items() if value]


def _subject(
    index: int,
    name: str,
    run: dict[str, Any],
    rows: list[Result],
    told: list[dict[str, Any]],
) -> dict[str, Any]:
    facts = (run.get("subjects") or {}).get(name) or {}
    return {
        "name": words.visible(name),
        "shape": words.visible(words.shape(facts)),
        "headline": words.visible(words.headline(rows)),
        "tiles": [row for row in told if row["subject"] == words.visible(name)],
    }


def _counterexample(row: Result) -> dict[str, Any]:
    seen = row.counterexample or {}
    observed, allowed = seen.get("observed", row.observed), seen.get("allowed", row.bound)

    def texts(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [
            (_text(label), words.visible(words.clipped(text, MOST_INPUT), "\n"))
            for label, text in pairs[:MOST_INPUTS]
        ]

    return {
        "id": words.visible(row.id),
        "name": _text(row.name),
        "subject": words.visible(row.subject),
        "class": CLASSES[row.verdict],
        "control": words.CONTROL if seen.get("control") else "",
        "inputs": texts(words.inputs(seen)),
        "where": _text(words.plain(seen.get("where") or "")),
        "observed": _told(observed),
        "allowed": _told(allowed),
        "times": _times(observed, allowed),
        "others": texts(words.unknown(seen)),
        "replay": words.visible(words.clipped(words.plain(seen.get("replay") or ""), MOST_COMMAND)),
    }


def _told(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return words.power(value)
    return _text(words.size(value))


def _times(observed: Any, allowed: Any) -> str:
    """How many times the allowed was seen, where that says something."""
    if not isinstance(observed, int | float) or not isinstance(allowed, int | float):
        return ""
    if not math.isfinite(observed) or not math.isfinite(allowed) or allowed <= 0:
        return ""
    times = observed / allowed
    return f"{times:,.0f}".replace(",", "\u202f") if 2 <= times < 1e7 else ""


def _pictures(
    run: dict[str, Any], groups: dict[str, list[Result]], room: int
) -> list[dict[str, Any]]:
    # Matplotlib takes a second to load: only who wants a page should wait for it.
    from harness.report import pictures

    most = min(pictures.MOST_ROWS, max(4, room // max(1, len(groups))))
    told = []
    for index, (name, rows) in enumerate(groups.items()):
        fit = pictures.drawable(rows)
        drawn = pictures.tightest(fit, most)
        if not drawn:
            continue
        dtype = str(run.get("dtype") or "")
        told.append(
            {
                "subject": words.visible(name),
                "label": _spoken(drawn),
                "drawings": [
                    Markup(pictures.margins(drawn, dtype, layout, f"p{index}{layout.name}"))
                    for layout in (pictures.WIDE, pictures.NARROW)
                ],
                "left_out": len(fit) - len(drawn),
                "unfit": sum(row.verdict is not Verdict.NOT_APPLICABLE for row in rows)
                - len(fit),
            }
        )
    return told


def _spoken(rows: list[Result]) -> str:
    """What the picture shows, for those who do not see it."""
    least = min(rows, key=lambda row: row.margin or 0.0)
    beyond = sum((row.margin or 0.0) < 0 for row in rows)
    return words.visible(
        f"Observed and allowed difference of {words.counted(len(rows), 'claim')} on a log scale."
        f" {beyond or 'None'} beyond what is allowed. The least margin is that of {least.id},"
        f" {words.decades(least)} decades. The numbers are in the table of verdicts."
    )


def _all_absent(groups: dict[str, list[Result]]) -> list[dict[str, Any]]:
    """Per subject the reasons, each with the claims (id, name) that do not apply for it."""
    told = []
    for subject, rows in groups.items():
        reasons: dict[str, list[tuple[str, str]]] = {}
        for row in rows:
            if row.verdict is Verdict.NOT_APPLICABLE:
                claim = (words.visible(row.id), _text(row.name))
                reasons.setdefault(_text(row.reason or "no reason given"), []).append(claim)
        if reasons:
            told.append({"subject": words.visible(subject), "reasons": list(reasons.items())})
    return told


def _text(text: str) -> str:
    return words.visible(words.clipped(text, MOST_TEXT))


def _environment(run: dict[str, Any]) -> dict[str, Any]:
    told = {
        "Run": run.get("id"),
        "Started": words.moment(run.get("started")) or None,
        "Finished": words.moment(run.get("finished")) or "not finished",
        "Exit code": run.get("exit"),
        "Suite": run.get("suite"),
        "Profile": run.get("profile"),
        "Seed": run.get("seed"),
        "Device": run.get("device"),
        "Precision": run.get("dtype"),
        "Attention": run.get("attention"),
        "Threads": run.get("threads"),
        "Platform": run.get("platform"),
    }
    told |= dict(run.get("versions") or {})
    return {
        "facts": [(n, words.visible(str(v))) for n, v in told.items() if v is not None],
        "subjects": [
            {
                "name": words.visible(name),
                "facts": [
                    ("Architecture", words.visible(words.shape(facts)) or "–"),
                    ("SHA-256 of configuration and weights", facts.get("digest") or "–"),
                    ("Capabilities", ", ".join(map(str, facts.get("capabilities") or ["–"]))),
                ],
                "missing": [
                    (_text(str(what)), _text(str(why)))
                    for what, why in (facts.get("missing") or {}).items()
                ],
            }
            for name, facts in (run.get("subjects") or {}).items()
        ],
    }


