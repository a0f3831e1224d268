"""The fields of the JSON that `assay invert` writes, and its schema."""

from __future__ import annotations

from typing import Annotated, Literal

from assay.harness import inversion
from assay.harness.inversion import GIVEN
from assay.harness.results.json_schema import Count, Name, Record, says, schema

VERSION = 1
"""Of the schema: raised when a key goes or changes its meaning, not for a new key."""

Ids = list[Count]
Seconds = Annotated[float, says("", ge=0)]


def _one_of(names: object) -> dict[str, list[str]]:
    return {"enum": list(names)}  # type: ignore[call-overload]


class Step(Record):
    """A step of a descent that is shown."""

    step: Annotated[Count, says("How many steps have been made.")]
    loss: Annotated[float | None, says("The distance then; null: not finite.")]
    ids: Annotated[Ids, says("Token ids by position.")]


class Prompt(Record):
    """One prompt, in the order given: texts first."""

    ids: Annotated[Ids, says("Token ids by position.")]
    text: Annotated[str, says("The prompt as text; ids where there is no tokenizer.")]
    found: Annotated[Ids, says("Token ids that were recovered, by position.")]
    found_text: Annotated[str, says("What was recovered, as text.")]
    recovered: Annotated[Count, says("Positions at which that token is the prompt's.")]
    verified: Annotated[
        list[bool],
        says("By position: whether what was recovered gives the given output, up to rounding."),
    ]
    distances: Annotated[
        list[float | None],
        says("By position: how far off that output is, relative; null: not finite."),
    ]
    tried: Annotated[
        list[Count],
        says(
            "By position: candidates of the vocabulary whose states were computed; 0 in a "
            "descent, and where not all states were given in order."
        ),
    ]
    passes: Annotated[
        Count,
        says("Passes of the model, over whole prompts or candidates; 0 in a descent."),
    ]
    equal: Annotated[
        list[Ids],
        says("By position: all tokens that give the same output, where there are several."),
    ]
    any_length: Annotated[
        bool, says("Whether any number of repetitions of the token ends in the same state.")
    ]
    seconds: Annotated[Seconds, says("Time without set-up.")]
    set_up: Annotated[Count, says("States computed before the search.")]
    set_up_seconds: Annotated[Seconds, says("Time that they took; 0 if kept from before.")]
    steps: Annotated[list[Step], says("Of a descent.")]
    top: Annotated[list[Ids], says("By position: tokens nearest to the end of a descent.")]
    notes: Annotated[list[str], says("What else to know, in sentences.")]


class Descent(Record):
    """How the descent was made."""

    steps: Annotated[int, says("At most.", ge=1)]
    rate: Annotated[Seconds, says("Learning rate, in units of the embedding's scale.")]
    optimiser: Annotated[Name, says("Kind of step.")]
    distance: Annotated[Name, says("What the loss is.")]
    schedule: Annotated[Name, says("How the learning rate falls.")]
    decoder: Annotated[
        str, says("From embeddings to tokens.", extra_json_schema=_one_of(inversion.DECODERS))
    ]
    start: Annotated[
        str, says("Noise that it began from.", extra_json_schema=_one_of(inversion.STARTS))
    ]
    seed: Annotated[Count, says("Of that noise.")]


class Recovery(Record):
    """What `assay invert --json` writes."""

    schema: Annotated[Literal[1], says("Version of this schema.")]
    suite: Annotated[Name, says("Version of Assay.")]
    versions: Annotated[dict[str, str], says("Python and package versions.")]
    model: Annotated[Name, says("The model as it was named.")]
    digest: Annotated[str, says("SHA-256 of configuration and weights.")]
    vocabulary: Annotated[int, says("How many tokens there are.", ge=1)]
    device: Annotated[Name, says("Where it ran.")]
    dtype: Annotated[Name, says("In what it ran.")]
    attention: Annotated[Name, says("Attention implementation.")]
    depth: Annotated[Count, says("After how many blocks the output was taken.")]
    target: Annotated[Name, says("Which output was taken.")]
    given: Annotated[
        str, says("What of it was given.", extra_json_schema=_one_of(GIVEN))
    ]
    method: Annotated[str, says("How.", extra_json_schema=_one_of(inversion.METHODS))]
    descent: Annotated[Descent | None, says("Null: it was a search.")]
    ok: Annotated[bool, says("Whether every token was recovered and verified.")]
    prompts: Annotated[list[Prompt], says("The prompts.", min_length=1)]


SCHEMA = schema(Recovery, "Prompts recovered by Assay")
