"""The JSON of a comparison of two runs: what stands in it, and its schema."""

from __future__ import annotations

from typing import Any

from assay.harness.comparison.judging import ERROR, Compared, Comparison, Flip
from assay.harness.comparison.sides import Key, Side
from assay.harness.results.schema import _COUNT, _NAME, _map, _object, _of
from assay.harness.results.verdicts import Kind, Verdict, _plain

VERSION = 1
"""Of the schema: raised when a key goes or changes its meaning, not for a new key."""

TOLD = ("verdict", "observed", "bound", "margin", "interval", "examples", "reason")
"""What is told of either side of a claim."""

ABOUT = ("id", "started", "finished", "exit", "suite", "profile", "seed", "device", "dtype")
"""What is told of a run."""


def document(found: Comparison, least: float) -> dict[str, Any]:
    """The comparison in plain JSON types, as `SCHEMA` has it; what is not finite is null."""
    flips = [each for kind in Flip for each in found.flips(kind)]
    told = {
        "schema": VERSION,
        "before": _side(found.before),
        "after": _side(found.after),
        "changed": {name: list(pair) for name, pair in found.changed.items()},
        "compared": len(found.claims),
        "judged": found.judged,
        "paired": found.paired,
        "error": ERROR,
        "confidence": found.confidence,
        "least": least,
        "regressions": len(found.flips(Flip.REGRESSION)),
        "flips": [_claim(each, least) for each in flips],
        "drifts": [_claim(each, least) for each in found.drifts(0.0)],
        "unjudged": [_claim(each, least) for each in found.claims if each.unjudged],
        "gone": [_key(key) for key in found.gone],
        "new": [_key(key) for key in found.new],
        "gone_subjects": found.gone_subjects,
        "new_subjects": found.new_subjects,
        "other_weights": {
            name: [found.before.digest(name), found.after.digest(name)]
            for name in found.other_weights
        },
    }
    plain: dict[str, Any] = _plain(told)
    return plain


def _side(side: Side) -> dict[str, Any]:
    return {"name": side.name, "runs": side.runs, **{name: side.run.get(name) for name in ABOUT}}


def _key(key: Key) -> dict[str, str]:
    return dict(zip(("id", "name", "subject"), key, strict=True))


def _claim(each: Compared, least: float) -> dict[str, Any]:
    restated = each.restated
    told: dict[str, Any] = {
        **_key(each.key),
        "kind": each.after["kind"],
        "flip": each.flip,
        "vanished": each.vanished or None,
        "before": {name: each.before.get(name) for name in TOLD},
        "after": {name: each.after.get(name) for name in TOLD},
        "claimed": None if restated is None else list(restated),
        "shift": None,
    }
    if (shift := each.shift) is not None:
        told["shift"] = {
            "shift": shift.shift,
            "interval": None if each.interval is None else list(each.interval),
            "p": shift.p,
            "adjusted": each.adjusted,
            "size": shift.size,
            "draws": shift.draws,
            "paired": shift.paired,
            "real": each.real,
            "drift": each.drifted(least),
        }
    return told


_SIDE = _object(
    "A run, as it was named and as the evidence has it.",
    {
        "name": _of("string", "As the user named it.", **_NAME),
        "runs": _of("integer", "How many it is made of; entries that differ are null.", **_COUNT),
        "id": _of(["string", "null"], "Its key in the evidence."),
        "started": _of(["string", "null"], "ISO 8601, UTC."),
        "finished": _of(["string", "null"], "The same; null: it did not end."),
        "exit": _of(["integer", "null"], "Exit code of the run."),
        "suite": _of(["string", "null"], "Version of Assay."),
        "profile": _of(["string", "null"], "Budgets."),
        "seed": _of(["integer", "null"], "The seed that all draws come from."),
        "device": _of(["string", "null"], "Where it was computed."),
        "dtype": _of(["string", "null"], "Of the weights."),
    },
)

_NUMBER = ["number", "null"]

_OF_RUN = _object(
    "A claim's result in one run; see the schema of a run's report.",
    {
        "verdict": _of("string", "What it came to.", enum=[each.value for each in Verdict]),
        "observed": _of(_NUMBER, "What was measured."),
        "bound": _of(_NUMBER, "What is allowed."),
        "margin": _of(_NUMBER, "Law: decades within the bound. Finding: half-widths."),
        "interval": _of(["array", "null"], "Of a finding.", items=_of(_NUMBER, "An end.")),
        "examples": _of("integer", "Inputs tried.", **_COUNT),
        "reason": _of("string", "Why it did not apply or was not decided."),
    },
)

_SHIFT = _object(
    "By how much the number is larger after: a law's mean margin in decades, a finding's "
    "statistic in its own unit (a median: that of the differences where they are paired).",
    {
        "shift": _of(_NUMBER, "After less before."),
        "interval": _of(
            ["array", "null"],
            "Its interval at the document's `confidence`; an end may be null: not finite.",
            items=_of(_NUMBER, "An end."),
        ),
        "p": _of("number", "Of no shift at all.", minimum=0, maximum=1),
        "adjusted": _of("number", "The same after Benjamini and Hochberg.", minimum=0, maximum=1),
        "size": _of(_NUMBER, "Law: decades. Finding: spreads of one draw. Null: infinite."),
        "draws": _of("integer", "Examples or draws that were looked at.", **_COUNT),
        "paired": _of("boolean", "Whether each was held against the same draw before."),
        "real": _of("boolean", "Whether `adjusted` is at most the document's `error`."),
        "drift": _of("boolean", "Whether it is also at least `least` in `size`."),
    },
)
_SHIFT["type"] = ["object", "null"]

_KEY = {
    "id": _of("string", "The claim's lasting number.", **_NAME),
    "name": _of("string", "The claim in words.", **_NAME),
    "subject": _of("string", "The model.", **_NAME),
}

_CLAIM = _object(
    "A claim on a model in both runs.",
    {
        **_KEY,
        "kind": _of("string", "law or finding.", enum=[each.value for each in Kind]),
        "flip": _of(
            ["string", "null"],
            "regression: refuted now and upheld or not applicable before, or upheld before and "
            "not applicable now for want of a capability; lost: upheld before and undecided now, "
            "or not applicable for another reason; gained: upheld now; unseen: the run that "
            "upheld the law did not come to the example that broke it in the other; other; null: "
            "the same verdict.",
            enum=[*(each.value for each in Flip), None],
        ),
        "vanished": _of(
            ["string", "null"],
            "The capability that the model has no longer, if the claim needs it.",
        ),
        "before": _OF_RUN,
        "after": _OF_RUN,
        "claimed": _of(
            ["array", "null"],
            "What was claimed before and after, where that is not the same.",
            items=_of("string", "Such as share ≥ 0.9."),
        ),
        "shift": _SHIFT,
    },
)


def _list(description: str, items: dict[str, Any]) -> dict[str, Any]:
    return _of("array", description, items=items)


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Two runs of Assay compared",
    **_object(
        "What became of the claims from one run to another.",
        {
            "schema": _of("integer", "Version of this schema.", const=VERSION),
            "before": _SIDE,
            "after": _SIDE,
            "changed": _map(
                "Settings and versions that differ, by name.",
                _of("array", "Before and after.", minItems=2, maxItems=2),
            ),
            "compared": _of("integer", "Claims on models that both runs have.", **_COUNT),
            "judged": _of("integer", "Those whose samples could be compared.", **_COUNT),
            "paired": _of("boolean", "Whether both runs drew the same inputs."),
            "error": _of("number", "The share of drifts that are none, among those told."),
            "confidence": _of("number", "Of every interval; corrected for how many there are."),
            "least": _of("number", "In `size`, of what is called a drift."),
            "regressions": _of("integer", "Flips that are; the exit code is 1 if any.", **_COUNT),
            "flips": _list("Claims with another verdict, regressions first.", _CLAIM),
            "drifts": _list("Others whose number really moved, farthest first.", _CLAIM),
            "unjudged": _list("Claims whose number moved, without samples to judge it.", _CLAIM),
            "gone": _list("Only in the first run.", _object("A claim.", _KEY)),
            "new": _list("Only in the second run.", _object("A claim.", _KEY)),
            "gone_subjects": _list("Models of the first run only.", _of("string", "A name.")),
            "new_subjects": _list("Models of the second run only.", _of("string", "A name.")),
            "other_weights": _map(
                "Models whose configuration or weights are not the same, by name.",
                _of("array", "SHA-256 before and after.", items=_of("string", "In hex.")),
            ),
        },
    ),
}
"""The JSON Schema (draft 2020-12) of `document`."""
