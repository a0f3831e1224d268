"""What the page shows, worked out beforehand: the template only lays it out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.report import exhibits, texts, words
from harness.verdicts import Result, Verdict

# These keep the page small, whatever the run was like; what they leave out is in the JSON.
MOST_ROWS = 1500
MOST_DRAWN = 480
MOST_COUNTEREXAMPLES = 60

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
    kept = sorted(_worst_first(ordered)[: int(share * MOST_ROWS)])
    rows = [_row(i, ordered[i], judgements) for i in kept]
    broken = [row for row in ordered if row.counterexample is not None]
    told = broken[: int(share * MOST_COUNTEREXAMPLES)]
    return {
        "headline": texts.visible(words.headline(ordered)),
        "asides": [texts.visible(line) for line in words.asides(run, ordered)],
        "facts": _facts(run, ordered),
        "verdicts": [
            {"name": str(verdict), "class": exhibits.CLASSES[verdict], "count": count}
            | {"symbol": words.SYMBOLS[verdict]}
            for verdict, count in words.tally(ordered).items()
        ],
        "subjects": [_subject(name, run, mine, rows) for name, mine in groups.items()],
        "rows": rows,
        "rows_left_out": len(ordered) - len(rows),
        "counterexamples": [exhibits.counterexample(row) for row in told],
        "counterexamples_left_out": len(broken) - len(told),
        "pictures": exhibits.margins(run, groups, int(share * MOST_DRAWN)),
        "absent": _all_absent(groups),
        "environment": _environment(run),
        "bound_at": round(BOUND_AT, 1),
        "meanings": words.MEANINGS,
    }


def _worst_first(rows: list[Result]) -> list[int]:
    """Places in ``rows``: what is refuted first, what does not apply last."""
    order = [Verdict.REFUTED, Verdict.INCONCLUSIVE, Verdict.UPHELD, Verdict.NOT_APPLICABLE]

    def badness(i: int) -> tuple[int, float]:
        return order.index(rows[i].verdict), _finite(rows[i].margin) or 0.0

    return sorted(range(len(rows)), key=badness)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _row(index: int, row: Result, judgements: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    applies = row.verdict is not Verdict.NOT_APPLICABLE
    keys = [index, _finite(row.margin), _finite(row.observed), _finite(row.bound)]
    keys += [row.examples, _finite(row.seconds)] if applies else [None, None]
    low_high = "\u00a0…\u00a0".join(map(texts.power, row.interval or ()))
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
        "margin": texts.decades(row).replace("-", "−"),
        "bar": _bar(row.margin),
        "observed": texts.power(row.observed),
        "interval": low_high,
        "bound": texts.power(row.bound),
        "examples": row.examples,
        "seconds": texts.duration(row.seconds),
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
        "Time": texts.duration(sum(_finite(row.seconds) or 0.0 for row in rows)),
    }
    return [(name, texts.visible(str(value), "\u202f")) for name, value in told.items() if value]


def _subject(
    name: str,
    run: dict[str, Any],
    rows: list[Result],
    told: list[dict[str, Any]],
) -> dict[str, Any]:
    facts = (run.get("subjects") or {}).get(name) or {}
    return {
        "name": texts.visible(name),
        "shape": texts.visible(words.shape(facts)),
        "headline": texts.visible(words.headline(rows)),
        "tiles": [row for row in told if row["subject"] == texts.visible(name)],
    }


def _all_absent(groups: dict[str, list[Result]]) -> list[dict[str, Any]]:
    """Per subject the reasons, each with the claims (id, name) that do not apply for it."""
    told = []
    for subject, rows in groups.items():
        reasons: dict[str, list[tuple[str, str]]] = {}
        for row in rows:
            if row.verdict is Verdict.NOT_APPLICABLE:
                why = exhibits.short(row.reason or "no reason given")
                claim = (texts.visible(row.id), exhibits.short(row.name))
                reasons.setdefault(why, []).append(claim)
        if reasons:
            told.append({"subject": texts.visible(subject), "reasons": list(reasons.items())})
    return told


def _environment(run: dict[str, Any]) -> dict[str, Any]:
    told = {
        "Run": run.get("id"),
        "Started": texts.moment(run.get("started")) or None,
        "Finished": texts.moment(run.get("finished")) or "not finished",
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
        "facts": [(n, texts.visible(str(v))) for n, v in told.items() if v is not None],
        "subjects": [
            {
                "name": texts.visible(name),
                "facts": [
                    ("Architecture", texts.visible(words.shape(facts)) or "–"),
                    ("SHA-256 of configuration and weights", facts.get("digest") or "–"),
                    ("Capabilities", ", ".join(map(str, facts.get("capabilities") or ["–"]))),
                ],
                "missing": [
                    (exhibits.short(str(what)), exhibits.short(str(why)))
                    for what, why in (facts.get("missing") or {}).items()
                ],
            }
            for name, facts in (run.get("subjects") or {}).items()
        ],
    }
