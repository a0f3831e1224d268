"""The JSON of a comparison of two runs (docs/schema.md)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from assay.harness.comparison.changes import Flip
from assay.harness.comparison.judging import ERROR, Compared, Comparison
from assay.harness.comparison.sides import Key, Side
from assay.harness.comparison.token_changes import TokenChange
from assay.harness.results.encoding import encode
from assay.harness.results.verdicts import Result

VERSION: Final = 1
"""Version of the schema, raised when a key goes or changes its meaning, not for a new key."""

OF_A_RUN = ("id", "started", "finished", "exit", "suite", "profile", "seed", "device", "dtype")
OF_A_RESULT = ("verdict", "observed", "bound", "margin", "interval", "examples", "reason")
"""What a comparison repeats of the records of runs and results."""


def document(comparison: Comparison, least: float) -> str:
    """The comparison as JSON."""
    before, after = comparison.before, comparison.after
    flips = [each for kind in Flip for each in comparison.flips(kind)]
    record = {
        "schema": VERSION,
        "before": _side(before),
        "after": _side(after),
        "changed": comparison.changed,
        "compared": len(comparison.claims),
        "judged": comparison.judged,
        "paired": comparison.paired,
        "error": ERROR,
        "confidence": comparison.confidence,
        "least": least,
        "regressions": len(comparison.flips(Flip.REGRESSION)),
        "flips": [_claim(each, least) for each in flips],
        "drifts": [_claim(each, least) for each in comparison.drifts(0.0)],
        "unjudged": [_claim(each, least) for each in comparison.claims if each.unjudged],
        "gone": [_key(key) for key in comparison.gone],
        "new": [_key(key) for key in comparison.new],
        "gone_subjects": comparison.gone_subjects,
        "new_subjects": comparison.new_subjects,
        "other_ids": [_texts(each) for each in comparison.token_changes],
        "other_weights": {
            name: [before.digest(name), after.digest(name)] for name in comparison.other_weights
        },
    }
    return msgspec.json.format(encode(record), indent=2) + "\n"


def _side(side: Side) -> dict[str, Any]:
    facts = {name: getattr(side.run, name) for name in OF_A_RUN}
    return {"name": side.name, "runs": side.runs} | facts


def _key(key: Key) -> dict[str, str]:
    return dict(zip(("id", "name", "subject"), key, strict=True))


def _texts(each: TokenChange) -> dict[str, Any]:
    change = each.change
    return {
        "subject": each.subject,
        "line": change.line + 1,
        "letter": change.letter,
        "text": change.text,
        "before": change.before,
        "after": change.after,
    }


def _result(row: Result) -> dict[str, Any]:
    return {name: getattr(row, name) for name in OF_A_RESULT}


def _claim(each: Compared, least: float) -> dict[str, Any]:
    return _key(each.key) | {
        "kind": each.after.kind,
        "flip": each.flip,
        "vanished": each.vanished or None,
        "before": _result(each.before),
        "after": _result(each.after),
        "claimed": each.restated,
        "shift": _shift(each, least),
    }


def _shift(each: Compared, least: float) -> dict[str, Any] | None:
    if (shift := each.shift) is None:
        return None
    return {
        "shift": shift.shift,
        "interval": each.interval,
        "p": shift.p,
        "adjusted": each.adjusted,
        "size": shift.size,
        "draws": shift.draws,
        "paired": shift.paired,
        "real": each.real,
        "drift": each.drifted(least),
    }
