"""The JSON report of a run: its fields, its schema, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from assay.harness.results import bibliography
from assay.harness.results.json_schema import Count, Name, Record, Time, says, schema
from assay.harness.results.outputs import replace_file
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import DECADES, Kind, Result, Verdict, plain_json

VERSION = 1
"""Version of the report's schema, raised when a key goes or changes meaning, not for a new key."""

Ways = Literal["causal", "both"]


def document(run: RunRecord, results: Iterable[Result]) -> dict[str, Any]:
    """The report in plain JSON types, as `SCHEMA` has it; numbers that are not finite are null.

    Samples and pictures are left to the evidence.
    """
    claims = [result.as_json() for result in results]
    return {
        "schema": VERSION,
        "run": plain_json(run.as_json()),
        "claims": [{key: claim[key] for key in Claim.__struct_fields__} for claim in claims],
        "bibliography": bibliography.works(claim["source"] for claim in claims),
    }


def write_json(path: str | Path, run: RunRecord, results: Iterable[Result]) -> None:
    """Write `document`, whole or not at all; BadInput if the path cannot be written."""
    # Escaped to ASCII: tokens may hold what no encoding takes, such as half a surrogate pair.
    replace_file(path, json.dumps(document(run, results), indent=2, allow_nan=False) + "\n")


class Attends(Record):
    """Whether a model is meant to be causal."""

    ways: Annotated[Ways | None, says("Null: nothing says.")]
    why: Annotated[Name, says("What says so.")]


class Recorded(Record):
    """What is recorded of a model's type, and what the model lacks of that."""

    type: Annotated[str | None, says("KIND:MODEL_TYPE; null: it is not judged.")]
    version: Annotated[str | None, says("Minor version of transformers.")]
    why: Annotated[str, says("Why it is not judged; or empty.")]
    lacks: Annotated[
        dict[str, str],
        says("Capabilities that it is expected to have and does not: how this was seen."),
    ]
    basis: (
        Annotated[
            Literal["record", "earlier version", "later version", "class"],
            says("What expects them: its type's record, or its class; older runs do not say."),
        ]
        | UnsetType
    ) = UNSET


class Subject(Record):
    """A model under test."""

    digest: Annotated[
        str, says("SHA-256 of configuration and weights, in hex.", pattern="^[0-9a-f]{64}$")
    ]
    model_type: Annotated[Name, says("The model type of its configuration, such as gpt2.")]
    parameters: Annotated[Count, says("How many numbers its weights are.")]
    vocabulary: Annotated[Count, says("Rows of the input embedding.")]
    context: Annotated[
        int | None, says("Positions at most; null: no limit.", extra_json_schema={"minimum": 1})
    ]
    hidden: Annotated[Count, says("Width of a hidden state.")]
    layers: Annotated[Count, says("How many blocks it has.")]
    attention: Annotated[Name, says("The attention implementation it was run with.")]
    capabilities: Annotated[list[Name], says("What it can do, by name.")]
    missing: Annotated[dict[str, str], says("What it cannot do: capability to the reason.")]
    attends: Annotated[Attends, says("Older runs do not say.")] | UnsetType = UNSET
    recorded: Annotated[Recorded, says("Older runs do not say.")] | UnsetType = UNSET
    dtype: (
        Annotated[Name, says("Type of its weights, such as float32; older runs do not say.")]
        | UnsetType
    ) = UNSET


class Selection(Record):
    """Which claims were asked for."""

    numbers: Annotated[list[str], says("What --claim said: ID[:TEXT].")]
    keyword: Annotated[str, says("What -k said; or empty.")]
    marker: Annotated[str, says("What -m said; or empty.")]
    claims: Annotated[list[str], says("Paths from the root on.")]
    dtype: (
        Annotated[Literal["auto"], says("Checkpoints ran in their own; else not there.")]
        | UnsetType
    ) = UNSET
    models: (
        Annotated[
            list[Name], says("What --model said, so patterns as such; older runs do not say.")
        ]
        | UnsetType
    ) = UNSET


class Run(Record):
    """The run: what must be the same for its numbers to come out again."""

    id: Annotated[Name, says("A UUID in hex; the run's key in the evidence.")]
    started: Annotated[Time, says("When it began: ISO 8601, UTC.")]
    finished: Annotated[Time | None, says("When it ended; null: it did not.")]
    exit: Annotated[int | None, says("Exit code; null: it did not end.")]
    suite: Annotated[Name, says("Version of Assay.")]
    profile: Annotated[Literal["glance", "quick", "standard", "thorough"], says("Budgets.")]
    seed: Annotated[int, says("The seed that all draws come from.")]
    device: Annotated[Name, says("cpu, or an accelerator with the GPU's name.")]
    dtype: Annotated[Name, says("Types of the models' weights, such as float32: each once.")]
    attention: Annotated[
        str | None, says("Attention implementation asked for; null: each model's own.")
    ]
    versions: Annotated[
        dict[str, str],
        says(
            "Python and package versions, by name.",
            extra_json_schema={"required": ["python", "torch", "transformers"]},
        ),
    ]
    platform: Annotated[str, says("Operating system and processor.")]
    threads: Annotated[int, says("Threads of torch inside one operation.", ge=1)]
    subjects: Annotated[
        dict[str, Subject], says("The models under test by the name that the user gave.")
    ]
    rounding: (
        Annotated[
            int | None,
            says(
                "The seed by which another machine's rounding was emulated; null: it was not; "
                "older runs do not say.",
                extra_json_schema={"minimum": 0},
            ),
        ]
        | UnsetType
    ) = UNSET
    allocation: (
        Annotated[
            str | None,
            says("Where models were put in memory; null: as allocated; older runs do not say."),
        ]
        | UnsetType
    ) = UNSET
    attends: (
        Annotated[
            Ways | None,
            says("What --attends says of every model; null: nothing. Older runs do not say."),
        ]
        | UnsetType
    ) = UNSET
    untested: (
        Annotated[
            str,
            says(
                "Whether transformers is newer than every version that Assay was tested with: a "
                "line that says so, or empty; older runs do not say."
            ),
        ]
        | UnsetType
    ) = UNSET
    bitwise: (
        Annotated[bool, says("Whether --bitwise was given; older runs do not say.")] | UnsetType
    ) = UNSET
    per_subject: (
        Annotated[Count, says("How many claims were asked for on each; older runs do not say.")]
        | UnsetType
    ) = UNSET
    selection: Annotated[Selection, says("Older runs do not say.")] | UnsetType = UNSET


class Control(Record):
    """A control of a law: what the same check must reject."""

    says: Annotated[str, says("What it is, in words.")]
    rejected: Annotated[Count, says("How often the check rejected it.")]
    tried: Annotated[Count, says("How often it was run.")]
    margin: Annotated[
        float, says("How far beyond its bound at best, in powers of ten, at most 16.")
    ]
    excuse: Annotated[str, says("Why it was not run on this model; or not there.")] | UnsetType = (
        field(default=UNSET, name="does not apply")
    )


class Counted(Record):
    """The smallest error that a law which counts can see."""

    what: Annotated[str, says("What is wrong, such as an element that is not finite.")]
    injected: Annotated[Count, says("How often it was injected.")]
    seen: Annotated[Count, says("How often it was rejected.")]


class Details(Struct):
    """What else a claim measured: any names, and some that mean the same in every law."""

    controls: Annotated[dict[str, Control], says("Of a law: its controls.")] | UnsetType = UNSET
    leak: (
        Annotated[
            float | None,
            says("Of a law: the smallest leak that was rejected, relative to a row; null: none."),
        ]
        | UnsetType
    ) = field(default=UNSET, name="sees a leak of")
    goal: (
        Annotated[float, says("Of a law: the leak that it must see, or it is inconclusive.")]
        | UnsetType
    ) = field(default=UNSET, name="must see a leak of")
    one: Annotated[Counted, says("Of a law that counts.")] | UnsetType = field(
        default=UNSET, name="sees one"
    )
    judged: Annotated[str, says("Of a law: what its results are compared with.")] | UnsetType = (
        field(default=UNSET, name="judged by")
    )


class Claim(Record):
    """One claim on one subject."""

    id: Annotated[Name, says("The claim's lasting number, such as C2.")]
    name: Annotated[Name, says("The claim in words; several may share a number.")]
    kind: Annotated[
        Kind, says("law: follows from the architecture; finding: about particular weights.")
    ]
    subject: Annotated[Name, says("The model: a key of the run's subjects.")]
    verdict: Annotated[Verdict, says("What it came to.")]
    observed: Annotated[
        float | None,
        says(
            "What was measured, in the claim's own unit (most laws: a relative difference), on "
            "the example with the least margin; null: not measured, or not finite."
        ),
    ]
    bound: Annotated[float | None, says("What is allowed there, in the unit of observed.")]
    margin: Annotated[
        Annotated[float, says("", ge=-DECADES, le=DECADES)] | None,
        says(
            "Law: log10(bound / observed), in powers of ten: positive inside the bound. Finding: "
            "how far the interval clears the bound, in half-widths. Cut off at ±16."
        ),
    ]
    interval: Annotated[
        tuple[float | None, float | None] | None,
        says(
            "95 % confidence interval of observed, lower end first; a null end is not finite. "
            "Laws have none."
        ),
    ]
    examples: Annotated[Count, says("Inputs tried.")]
    seconds: Annotated[float, says("Time spent on the claim, in seconds.", ge=0)]
    reason: Annotated[str, says("Why it did not apply, was not decided, or differs; or empty.")]
    counterexample: Annotated[
        dict[str, Any] | None,
        says("Of a broken law: the smallest inputs found, what was seen, the replaying command."),
    ]
    details: Annotated[Details, says("What else the claim measured, by its own names.")]
    source: (
        Annotated[
            str,
            says(
                "Where the claim comes from: documents by their keys in bibliography, and the "
                "place in them; older reports do not say."
            ),
        ]
        | UnsetType
    ) = UNSET


class Work(Record):
    """A document, a paper or a documentation."""

    title: Annotated[Name, says("Its title.")]
    author: Annotated[Name, says("Who wrote it, as far as it says.")]
    address: Annotated[Name, says("Where it is to be read.")]


class Report(Record):
    """Which claims hold on which models, with numbers."""

    schema: Annotated[Literal[1], says("Version of this schema.")]
    run: Annotated[Run, says("The run.")]
    claims: Annotated[list[Claim], says("In the order in which they ended.")]
    bibliography: (
        Annotated[
            dict[str, Work],
            says("The works that the claims' sources name, by key; older reports have none."),
        ]
        | UnsetType
    ) = UNSET


SCHEMA = schema(Report, "Assay's report")
