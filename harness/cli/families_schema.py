"""What stands in the JSON of `assay families`."""

from __future__ import annotations

from typing import Any

from assay.harness.models.runs import versions
from assay.harness.results.schema import _COUNT, _NAME, _map, _object, _of

VERSION = 1
"""Of the schema: raised when a key goes or changes its meaning, not for a new key."""

ROW = _object(
    "One model type as one kind of model.",
    {
        "model_type": _of("string", "The type, as in a configuration.", **_NAME),
        "class": _of("string", "The class that was made; empty if none was."),
        "kind": _of(
            "string", "The mapping that it stands in.", enum=["causal", "masked", "seq2seq"]
        ),
        "parameters": _of("integer", "How many numbers its weights are.", **_COUNT),
        "layers": _of(
            "array",
            "The kinds of its layers in order, where the configuration names them.",
            items=_of("string", "Such as full_attention.", **_NAME),
        ),
        "build_seconds": _of("number", "Time to make it.", **_COUNT),
        "run_seconds": _of("number", "Time of the first passes.", **_COUNT),
        "ways": _map(
            "Ways of giving it 16 tokens, `ids`, `embeddings` and `batch` (two rows and a padding "
            "mask): null where the output is finite. Empty if it was not built.",
            _of(["string", "null"], "Why it refuses, in one line."),
        ),
        "capabilities": _map(
            "Every capability by name, null where the type has it; empty unless recorded.",
            _of(["string", "null"], "Why it is missing."),
        ),
        "rule": _of("string", "Why it needed more than the general table; or empty."),
        "why": _of("string", "Why it does not run; or empty."),
        "runs": _of("boolean", "Whether it was built and gave finite logits for token ids."),
    },
)

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Types of language models, built tiny and run once",
    **_object(
        "Every type that was asked for, as every kind that it can be.",
        {
            "schema": _of("integer", "Version of this schema.", const=VERSION),
            "versions": _map("Python and package versions.", _of("string", "A version.")),
            "models": _of("array", "Causal, masked, seq2seq; by type.", items=ROW),
        },
    ),
}
"""The JSON Schema (draft 2020-12) of `document`."""


def document(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What `SCHEMA` describes."""
    return {"schema": VERSION, "versions": versions(), "models": rows}
