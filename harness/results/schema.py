"""The JSON report of a run: its schema, and how it is written and read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from assay.harness.results import bibliography
from assay.harness.results.encoding import Unreadable, decode, encode
from assay.harness.results.errors import BadInput
from assay.harness.results.json_schema import Count, Name, Record, says, schema
from assay.harness.results.outputs import replace_file
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Claim, Result

VERSION: Final = 1
"""Version of the report's schema, raised when a key goes or changes meaning, not for a new key."""


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


class Work(Record):
    """A document, a paper or a documentation."""

    title: Annotated[Name, says("Its title.")]
    author: Annotated[Name, says("Who wrote it, as far as it says.")]
    address: Annotated[Name, says("Where it is to be read.")]


class Report(Record):
    """Which claims hold on which models, with numbers."""

    schema: Annotated[Literal[1], says("Version of this schema.")]
    run: Annotated[RunRecord, says("The run.")]
    claims: Annotated[list[Claim], says("In the order in which they ended.")]
    bibliography: Annotated[
        dict[str, Work], says("The works that the claims' sources name, by key.")
    ] = field(default_factory=dict)


SCHEMA = schema(Report, "Assay's report", Details)


def document(run: RunRecord, results: Iterable[Result]) -> str:
    """The report as JSON; samples and pictures are left to the evidence."""
    claims = [result.claim for result in results]
    works = {
        work.key: Work(work.title, work.author, work.address)
        for work in bibliography.works(claim.source for claim in claims)
    }
    return msgspec.json.format(encode(Report(VERSION, run, claims, works)), indent=2) + "\n"


def write_json(path: str | Path, run: RunRecord, results: Iterable[Result]) -> None:
    """Write `document`, whole or not at all; BadInput if the path cannot be written."""
    replace_file(path, document(run, results))


def read_json(path: Path) -> tuple[RunRecord, list[Result]]:
    """The run and the claims of a report, which has no samples; raises `BadInput`."""
    try:
        report = decode(path.read_bytes(), Report)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error
    except Unreadable as error:
        raise BadInput(
            f"{path}: is not a report of a run (write one with --json): {error}"
        ) from error
    return report.run, [Result(**msgspec.structs.asdict(claim)) for claim in report.claims]
