"""The JSON report of a run: what it holds, and how it is written and read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import field

from assay.harness.results import bibliography
from assay.harness.results.encoding import Record, Unreadable, decode, encode
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import replace_file
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Claim, Result

VERSION: Final = 1
"""Version of the report's schema, raised when a key goes or changes meaning, not for a new key."""


class Work(Record):
    """A document, a paper or a documentation: where it is to be read."""

    title: str
    author: str
    address: str


class Report(Record):
    """Which claims hold on which models, with numbers; docs/schema.md describes it."""

    schema: Literal[1]
    run: RunRecord
    claims: list[Claim]
    bibliography: dict[str, Work] = field(default_factory=dict)


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
