"""What stands in the JSON of `assay invert`."""

from __future__ import annotations

from assay.harness.operations import inversion
from assay.harness.results.schema import _COUNT, _NAME, _map, _object, _of

VERSION = 1
"""Of the schema: raised when a key goes or changes its meaning, not for a new key."""

_IDS = _of("array", "Token ids by place.", items=_of("integer", "A token id.", **_COUNT))

STEP = _object(
    "A step of a descent that is shown.",
    {
        "step": _of("integer", "How many steps have been made.", **_COUNT),
        "loss": _of(["number", "null"], "The distance then; null: not finite."),
        "ids": _IDS,
    },
)

PROMPT = _object(
    "One prompt, in the order given: texts first.",
    {
        "ids": _IDS,
        "text": _of("string", "The prompt as text; ids where there is no tokenizer."),
        "found": _IDS,
        "found_text": _of("string", "What was found, as text."),
        "recovered": _of("integer", "Places at which the token found is the prompt's.", **_COUNT),
        "verified": _of(
            "array",
            "By place: whether what was found gives the output that was given.",
            items=_of("boolean", "Up to rounding."),
        ),
        "distances": _of(
            "array",
            "By place: how far off that output is.",
            items=_of(["number", "null"], "Relative; null: not finite."),
        ),
        "tried": _of(
            "array",
            "By place: candidates whose states were computed.",
            items=_of("integer", "Of the vocabulary; 0 in a descent.", **_COUNT),
        ),
        "equal": _of(
            "array",
            "By place: all tokens that give the same output, where there are several.",
            items=_IDS,
        ),
        "any_length": _of(
            "boolean", "Whether any number of repetitions of the token ends in the same state."
        ),
        "seconds": _of("number", "Time without set-up.", **_COUNT),
        "set_up": _of("integer", "States computed before the search.", **_COUNT),
        "set_up_seconds": _of("number", "Time that they took; 0 if kept from before.", **_COUNT),
        "steps": _of("array", "Of a descent.", items=STEP),
        "top": _of("array", "By place: tokens nearest to the end of a descent.", items=_IDS),
        "notes": _of("array", "What else to know.", items=_of("string", "A sentence.")),
    },
)

DESCENT = _object(
    "How the descent was made.",
    {
        "steps": _of("integer", "At most.", minimum=1),
        "rate": _of("number", "Step size, in units of the embedding's scale.", **_COUNT),
        "optimiser": _of("string", "Kind of step.", **_NAME),
        "distance": _of("string", "What the loss is.", **_NAME),
        "schedule": _of("string", "How the step size falls.", **_NAME),
        "decoder": _of("string", "From embeddings to tokens.", enum=list(inversion.DECODERS)),
        "start": _of("string", "Noise that it began from.", enum=list(inversion.STARTS)),
        "seed": _of("integer", "Of that noise.", **_COUNT),
    },
    type=["object", "null"],
)

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Prompts recovered by Assay",
    **_object(
        "What `assay invert --json` writes.",
        {
            "schema": _of("integer", "Version of this schema.", const=VERSION),
            "suite": _of("string", "Version of Assay.", **_NAME),
            "versions": _map("Python and package versions.", _of("string", "A version.")),
            "model": _of("string", "The model as it was named.", **_NAME),
            "digest": _of("string", "SHA-256 of configuration and weights."),
            "vocabulary": _of("integer", "How many tokens there are.", minimum=1),
            "device": _of("string", "Where it ran.", **_NAME),
            "dtype": _of("string", "In what it ran.", **_NAME),
            "attention": _of("string", "Attention implementation.", **_NAME),
            "depth": _of("integer", "After how many blocks the output was taken.", **_COUNT),
            "target": _of("string", "Which output was taken.", **_NAME),
            "method": _of("string", "How.", enum=list(inversion.METHODS)),
            "descent": DESCENT,
            "ok": _of("boolean", "Whether every token was recovered and verified."),
            "prompts": _of("array", "The prompts.", items=PROMPT, minItems=1),
        },
    ),
}
"""The JSON Schema (draft 2020-12) of `document`."""
