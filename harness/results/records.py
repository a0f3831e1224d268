"""Runs, subjects and counterexamples, as the evidence and the JSON report have them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from assay.harness.results.json_schema import Count, FrozenRecord, Name, Record, says

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Ways = Annotated[str, Meta(extra_json_schema={"enum": ["causal", "both"]})]
Auto = Annotated[str, Meta(extra_json_schema={"enum": ["auto"]})]


class Attends(FrozenRecord, frozen=True):
    """Whether a model is meant to be causal."""

    ways: Annotated[Ways | None, says("Null: nothing says.")] = None
    why: Annotated[str, says("What says so.")] = ""


class Recorded(FrozenRecord, frozen=True):
    """What a model is expected to have, by the record of its type or by its class."""

    type: Annotated[str | None, says("KIND:MODEL_TYPE; null: it is not judged.")] = None
    version: Annotated[str | None, says("Minor version of transformers.")] = None
    why: Annotated[str, says("Why it is not judged; or empty.")] = ""
    lacks: Annotated[
        dict[str, str],
        says("Capabilities that it is expected to have and does not: how this was seen."),
    ] = field(default_factory=dict)
    basis: Annotated[
        str,
        says(
            "What expects them: its type's record, or its class.",
            extra_json_schema={"enum": ["record", "earlier version", "later version", "class"]},
        ),
    ] = "record"
    form: Annotated[
        str,
        says("The tiny model of its type, such as tiny:t5, whose defects it shares; or empty."),
    ] = ""


class SubjectRecord(Record):
    """A model under test."""

    digest: Annotated[
        str,
        says(
            "SHA-256 of configuration and weights, in hex.",
            extra_json_schema={"pattern": "^[0-9a-f]{64}$"},
        ),
    ] = ""
    model_type: Annotated[Name, says("The model type of its configuration, such as gpt2.")] = ""
    parameters: Annotated[Count, says("How many numbers its weights are.")] = 0
    vocabulary: Annotated[Count, says("Rows of the input embedding.")] = 0
    context: Annotated[
        int | None, says("Positions at most; null: no limit.", extra_json_schema={"minimum": 1})
    ] = None
    hidden: Annotated[Count, says("Width of a hidden state.")] = 0
    layers: Annotated[Count, says("How many blocks it has.")] = 0
    attention: Annotated[Name, says("The attention implementation it was run with.")] = ""
    dtype: Annotated[Name, says("Type of its weights, such as float32.")] = ""
    attends: Annotated[Attends, says("Whether it is meant to be causal.")] = Attends()
    recorded: Annotated[
        Recorded, says("What is recorded of its type, and what it lacks of that.")
    ] = Recorded()
    capabilities: Annotated[list[Name], says("What it can do, by name.")] = field(
        default_factory=list
    )
    missing: Annotated[dict[str, str], says("What it cannot do: capability to the reason.")] = (
        field(default_factory=dict)
    )
    not_honoured: Annotated[
        list[str],
        says("Fields of its config.json that it has otherwise, or not at all: a line for each."),
    ] = field(default_factory=list)

    @property
    def is_short(self) -> bool:
        """Whether it was written before the capabilities were probed."""
        return not self.capabilities and not self.missing


class Selection(FrozenRecord, frozen=True):
    """Which claims were asked for, on which models."""

    models: Annotated[list[Name], says("What --model said, so patterns as such.")] = field(
        default_factory=list
    )
    numbers: Annotated[list[str], says("What --claim said: ID[:TEXT].")] = field(
        default_factory=list
    )
    keyword: Annotated[str, says("What -k said; or empty.")] = ""
    marker: Annotated[str, says("What -m said; or empty.")] = ""
    claims: Annotated[list[str], says("Paths from the root on.")] = field(default_factory=list)
    dtype: Annotated[Auto | None, says("Checkpoints ran in their own; else null.")] = None


class RunRecord(Record):
    """The run: what must be the same for its numbers to come out again."""

    id: Annotated[Name, says("A UUID in hex; the run's key in the evidence.")] = ""
    started: Annotated[Time, says("When it began: ISO 8601, UTC.")] = ""
    finished: Annotated[Time | None, says("When it ended; null: it did not.")] = None
    exit: Annotated[int | None, says("Exit code; null: it did not end.")] = None
    suite: Annotated[Name, says("Version of Assay.")] = ""
    profile: Annotated[
        str,
        says("Budgets.", extra_json_schema={"enum": ["glance", "quick", "standard", "thorough"]}),
    ] = ""
    seed: Annotated[int, says("The seed that all draws come from.")] = 0
    device: Annotated[Name, says("cpu, or an accelerator with the GPU's name.")] = ""
    dtype: Annotated[Name, says("Types of the models' weights, such as float32: each once.")] = ""
    attention: Annotated[
        str | None, says("Attention implementation asked for; null: each model's own.")
    ] = None
    attends: Annotated[Ways | None, says("What --attends says of every model; null: nothing.")] = (
        None
    )
    bitwise: Annotated[bool, says("Whether equal bits were demanded.")] = False
    layers: Annotated[
        str,
        says(
            "auto: laws about a large model are decided on its slice; all: on the whole of it.",
            extra_json_schema={"enum": ["auto", "all"]},
        ),
    ] = "auto"
    versions: Annotated[
        dict[str, str],
        says(
            "Python and package versions, by name.",
            extra_json_schema={"required": ["python", "torch", "transformers"]},
        ),
    ] = field(default_factory=dict)
    platform: Annotated[str, says("Operating system and processor.")] = ""
    threads: Annotated[
        int, says("Threads of torch inside one operation.", extra_json_schema={"minimum": 1})
    ] = 1
    subjects: Annotated[
        dict[str, SubjectRecord], says("The models under test by the name that the user gave.")
    ] = field(default_factory=dict)
    rounding: Annotated[
        int | None,
        says(
            "The seed by which another machine's rounding was emulated; null: it was not.",
            extra_json_schema={"minimum": 0},
        ),
    ] = None
    allocation: Annotated[
        str | None, says("Where models were put in memory; null: as allocated.")
    ] = None
    selection: Annotated[Selection, says("Which claims were asked for.")] = Selection()
    per_subject: Annotated[
        Count | None, says("How many claims were asked for on each model; null: not by pytest.")
    ] = None
    untested: Annotated[
        str,
        says(
            "Whether transformers is newer than every version that Assay was tested with: a line "
            "that says so, or empty."
        ),
    ] = ""

    def dtype_of(self, subject: str) -> str:
        """The dtype in which ``subject`` ran, which may differ from those of other models."""
        return self.subjects.get(subject, SubjectRecord()).dtype or self.dtype
