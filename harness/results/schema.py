"""The JSON report: what stands in it, its schema, and how it is written."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from assay.harness.results import bibliography
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import DECADES, Kind, Result, Verdict, _plain

VERSION = 1
"""Of the report's schema: raised when a key goes or changes its meaning, not for a new key."""


def document(run: dict[str, Any], results: Iterable[Result]) -> dict[str, Any]:
    """The report in plain JSON types, as `SCHEMA` has it; numbers that are not finite are null.

    Samples and pictures are left to the evidence.
    """
    claims = [result.as_json() for result in results]
    return {
        "schema": VERSION,
        "run": _plain(run),
        "claims": [{key: claim[key] for key in CLAIM["properties"]} for claim in claims],
        "bibliography": bibliography.works(claim["source"] for claim in claims),
    }


def write_json(path: str | Path, run: dict[str, Any], results: Iterable[Result]) -> None:
    """Write `document`, whole or not at all; BadInput if the path cannot be written."""
    # Escaped to ASCII: tokens may hold what no encoding takes, such as half a surrogate pair.
    replace_file(path, json.dumps(document(run, results), indent=2, allow_nan=False) + "\n")


def replace_file(path: str | Path, text: str) -> None:
    """Put ``text`` in the file's place as UTF-8, making its folder; on failure the old one stays.

    A link stays a link, and a device or a pipe is written to directly.  BadInput if this fails.
    """
    try:
        target = Path(path)
        if target.exists() and not target.is_file():
            target.write_bytes(text.encode())
            return
        target = Path(os.path.realpath(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".assay-{secrets.token_hex(8)}.tmp")
        try:
            with draft.open("xb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        why = "its folder is a file" if isinstance(error, FileExistsError) else error.strerror
        raise BadInput(f"{path}: cannot be written ({why}); give another path") from error


def _object(description: str, required: dict[str, Any], **rules: Any) -> dict[str, Any]:
    """An object that has exactly these keys."""
    return {
        "type": "object",
        "description": description,
        "properties": required,
        "required": list(required),
        "additionalProperties": False,
        **rules,
    }


def _map(description: str, values: dict[str, Any], *required: str) -> dict[str, Any]:
    """An object with any keys, these among them, and one kind of values."""
    return {
        "type": "object",
        "description": description,
        "additionalProperties": values,
        "required": list(required),
    }


def _of(kind: str | list[str], description: str, **rules: Any) -> dict[str, Any]:
    return {"type": kind, "description": description, **rules}


_COUNT = {"minimum": 0}
_TIME = {"format": "date-time"}
_NAME = {"minLength": 1}

SUBJECT = _object(
    "A model under test.",
    {
        "digest": _of(
            "string", "SHA-256 of configuration and weights, in hex.", pattern="^[0-9a-f]{64}$"
        ),
        "model_type": _of("string", "The model type of its configuration, such as gpt2.", **_NAME),
        "parameters": _of("integer", "How many numbers its weights are.", **_COUNT),
        "vocabulary": _of("integer", "Rows of the input embedding.", **_COUNT),
        "context": _of(["integer", "null"], "Positions at most; null: no limit.", minimum=1),
        "hidden": _of("integer", "Width of a hidden state.", **_COUNT),
        "layers": _of("integer", "How many blocks it has.", **_COUNT),
        "attention": _of("string", "The attention implementation it was run with.", **_NAME),
        "attends": _object(
            "Whether it is meant to be causal; older runs do not say.",
            {
                "ways": _of(
                    ["string", "null"], "Null: nothing says.", enum=["causal", "both", None]
                ),
                "why": _of("string", "What says so.", **_NAME),
            },
        ),
        "recorded": _object(
            "What is recorded of its type, and what it lacks of that; older runs do not say.",
            {
                "type": _of(["string", "null"], "KIND:MODEL_TYPE; null: it is not judged."),
                "version": _of(["string", "null"], "Minor version of transformers."),
                "why": _of("string", "Why it is not judged; or empty."),
                "lacks": _map(
                    "Capabilities that its type has and it has not: a broken model.",
                    _of("string", "How this was found."),
                ),
            },
        ),
        "capabilities": _of(
            "array", "What it can do, by name.", items=_of("string", "A capability.", **_NAME)
        ),
        "missing": _map(
            "What it cannot do: capability to the reason.", _of("string", "How this was found.")
        ),
    },
)

RUN = _object(
    "The run: what must be the same for its numbers to come out again.",
    {
        "id": _of("string", "A UUID in hex; the run's key in the evidence.", **_NAME),
        "started": _of("string", "When it began: ISO 8601, UTC.", **_TIME),
        "finished": _of(["string", "null"], "When it ended; null: it did not.", **_TIME),
        "exit": _of(["integer", "null"], "Exit code; null: it did not end."),
        "suite": _of("string", "Version of Assay.", **_NAME),
        "profile": _of("string", "Budgets.", enum=["glance", "quick", "standard", "thorough"]),
        "seed": _of("integer", "The seed that all draws come from."),
        "device": _of("string", "cpu, or an accelerator with its card's name.", **_NAME),
        "dtype": _of("string", "Type of the weights under test, such as float32.", **_NAME),
        "attention": _of(
            ["string", "null"], "Attention implementation asked for; null: each model's own."
        ),
        "rounding": _of(
            ["integer", "null"],
            "The seed by which another machine's rounding was emulated; null: it was not; older "
            "runs do not say.",
            minimum=0,
        ),
        "allocation": _of(
            ["string", "null"],
            "Where models were put in memory; null: as allocated; older runs do not say.",
        ),
        "attends": _of(
            ["string", "null"],
            "What --attends says of every model; null: nothing. Older runs do not say.",
            enum=["causal", "both", None],
        ),
        "versions": _map(
            "Python and package versions, by name.",
            _of("string", "A version."),
            *("python", "torch", "transformers"),
        ),
        "platform": _of("string", "Operating system and processor."),
        "threads": _of("integer", "Threads of torch inside one operation.", minimum=1),
        "subjects": _map("The models under test by the name that the user gave.", SUBJECT),
        "per_subject": _of(
            "integer", "How many claims were asked for on each; older runs do not say.", **_COUNT
        ),
        "selection": _object(
            "Which claims were asked for; older runs do not say.",
            {
                "numbers": _of("array", "What --claim said.", items=_of("string", "ID[:TEXT].")),
                "keyword": _of("string", "What -k said; or empty."),
                "marker": _of("string", "What -m said; or empty."),
                "claims": _of("array", "Paths from the root on.", items=_of("string", "A path.")),
                "models": _of(
                    "array",
                    "What --model said, so patterns as such; older runs do not say.",
                    items=_of("string", "A model or a pattern.", **_NAME),
                ),
            },
        ),
    },
)
for _later in ("selection", "per_subject", "rounding", "allocation", "attends"):
    RUN["required"].remove(_later)
for _later in ("attends", "recorded"):
    SUBJECT["required"].remove(_later)
RUN["properties"]["selection"]["required"].remove("models")

_CONTROL = _object(
    "A control of a law: what the same check must reject.",
    {
        "says": _of("string", "What it is, in words."),
        "rejected": _of("integer", "How often the check rejected it.", **_COUNT),
        "tried": _of("integer", "How often it was run.", **_COUNT),
        "margin": _of("number", "How far beyond its bound at best, in decades, at most 16."),
        "does not apply": _of("string", "Why it was not run on this model; or not there."),
    },
) | {"required": ["says", "rejected", "tried", "margin"]}


def _object_of_details() -> dict[str, Any]:
    """What else a claim measured: any names, and some that mean the same in every law."""
    leak = "Of a law: the smallest leak, relative to a row, that "
    known = {
        "controls": _map("Of a law: its controls by name.", _CONTROL),
        "sees a leak of": _of(["number", "null"], leak + "a comparison rejected; null: none."),
        "must see a leak of": _of("number", leak + "it must see, or it is inconclusive."),
        "sees one": _object(
            "Of a law that counts: the smallest error, and how often it was injected and seen.",
            {
                "what": _of("string", "What is wrong, such as an element that is not finite."),
                "injected": _of("integer", "How often.", **_COUNT),
                "seen": _of("integer", "How often it was rejected.", **_COUNT),
            },
        ),
        "judged by": _of("string", "Of a law: what its results are compared with."),
    }
    about = "What else the claim measured, by its own names."
    return {"type": "object", "description": about, "properties": known}


CLAIM = _object(
    "One claim on one subject.",
    {
        "id": _of("string", "The claim's lasting number, such as C2.", **_NAME),
        "name": _of("string", "The claim in words; several may share a number.", **_NAME),
        "kind": _of(
            "string",
            "law: follows from the architecture; finding: about particular weights.",
            enum=[kind.value for kind in Kind],
        ),
        "subject": _of("string", "The model: a key of the run's subjects.", **_NAME),
        "verdict": _of("string", "What it came to.", enum=[verdict.value for verdict in Verdict]),
        "observed": _of(
            ["number", "null"],
            "What was measured, in the claim's own unit (most laws: a relative difference), on "
            "the example with the least margin; null: not measured, or not finite.",
        ),
        "bound": _of(["number", "null"], "What is allowed there, in the unit of observed."),
        "margin": _of(
            ["number", "null"],
            "Law: log10(bound / observed), in decades: positive inside the bound. Finding: how "
            "far the interval clears the bound, in half-widths. Cut off at ±16.",
            minimum=-DECADES,
            maximum=DECADES,
        ),
        "interval": _of(
            ["array", "null"],
            "95 % confidence interval of observed, lower end first; a null end is not finite. "
            "Laws have none.",
            items=_of(["number", "null"], "An end, in the unit of observed."),
            minItems=2,
            maxItems=2,
        ),
        "examples": _of("integer", "Inputs tried.", **_COUNT),
        "seconds": _of("number", "Time spent on the claim, in seconds.", **_COUNT),
        "reason": _of("string", "Why it did not apply, was not decided, or differs; or empty."),
        "counterexample": _of(
            ["object", "null"],
            "Of a broken law: the smallest inputs found, what was seen, the replaying command.",
        ),
        "details": _object_of_details(),
        "source": _of(
            "string",
            "Where the claim comes from: documents by their keys in bibliography, and the place "
            "in them; older reports do not say.",
        ),
    },
)
CLAIM["required"].remove("source")

WORK = _object(
    "A document, a paper or a documentation.",
    {
        "title": _of("string", "Its title.", **_NAME),
        "author": _of("string", "Who wrote it, as far as it says.", **_NAME),
        "address": _of("string", "Where it is to be read.", **_NAME),
    },
)

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Assay's report",
    **_object(
        "Which claims hold on which models, with numbers.",
        {
            "schema": _of("integer", "Version of this schema.", const=VERSION),
            "run": RUN,
            "claims": _of("array", "In the order in which they ended.", items=CLAIM),
            "bibliography": _map(
                "The works that the claims' sources name, by key; older reports have none.",
                WORK,
            ),
        },
    ),
}
SCHEMA["required"].remove("bibliography")
"""The JSON Schema (draft 2020-12) of `document`: every key, its meaning and its unit."""
