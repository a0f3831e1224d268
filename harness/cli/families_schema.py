"""The fields of the JSON that `assay families` writes, and its schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import field

from assay.harness.models.runs import versions
from assay.harness.results.json_schema import Count, Name, Record, says, schema

VERSION = 1
"""Of the schema: raised when a key goes or changes its meaning, not for a new key."""

Seconds = Annotated[float, says("", ge=0)]


class Row(Record):
    """One model type as one kind of model."""

    model_type: Annotated[Name, says("The type, as in a configuration.")]
    class_: Annotated[str, says("The class that was made; empty if none was.")] = field(
        name="class"
    )
    kind: Annotated[Literal["causal", "masked", "seq2seq"], says("The mapping that it stands in.")]
    parameters: Annotated[Count, says("How many numbers its weights are.")]
    layers: Annotated[
        list[Name],
        says("The kinds of its layers in order, where the configuration names them."),
    ]
    build_seconds: Annotated[Seconds, says("Time to make it.")]
    run_seconds: Annotated[Seconds, says("Time of the first passes.")]
    ways: Annotated[
        dict[str, str | None],
        says(
            "Ways of giving it 16 tokens, `ids`, `embeddings` and `batch` (two rows and a padding "
            "mask): null where the output is finite, otherwise why it rejects them, in one line. "
            "Empty if it was not built."
        ),
    ]
    capabilities: Annotated[
        dict[str, str | None],
        says(
            "Every capability by name: null where the type has it, otherwise why it is missing; "
            "empty unless recorded."
        ),
    ]
    rule: Annotated[str, says("Why it needed more than the general table; or empty.")]
    why: Annotated[str, says("Why it does not run; or empty.")]
    runs: Annotated[bool, says("Whether it was built and gave finite logits for token ids.")]


class Families(Record):
    """Every type that was asked for, as every kind that it can be."""

    schema: Annotated[Literal[1], says("Version of this schema.")]
    versions: Annotated[dict[str, str], says("Python and package versions.")]
    models: Annotated[list[Row], says("Causal, masked, seq2seq; by type.")]


SCHEMA = schema(Families, "Types of language models, built tiny and run once")


def document(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The document that `SCHEMA` describes."""
    return {"schema": VERSION, "versions": versions(), "models": rows}
