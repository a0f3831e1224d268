"""Reads a JSON report of a run (`--json`), and checks the fields that a comparison uses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from assay.harness.results import schema
from assay.harness.results.errors import BadInput
from assay.harness.results.json_schema import mistake
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Kind, Verdict

Json = Mapping[str, Any]

NEEDED = ("id", "name", "subject", "verdict", "kind", "margin", "observed")


def read(path: Path) -> tuple[RunRecord, list[Json]]:
    """The run and its claims; raises `BadInput`."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
        if report["schema"] != schema.VERSION:
            raise BadInput(
                f"{path}: has schema {report['schema']}, this version knows {schema.VERSION}"
            )
        run = {**report["run"], "subjects": {**report["run"]["subjects"]}}
        _check(run, schema.Run)
        for row in report["claims"]:
            [row[name] for name in NEEDED]
            Verdict(row["verdict"]), Kind(row["kind"])
            _check(row, schema.Claim)
        # Samples are in the evidence only; the report's own ones, if any, are not used.
        return RunRecord.from_json(run), [{**row, "sample": {}} for row in report["claims"]]
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path}: is not a report of a run (write one with --json)") from error


def _check(record: Json, its: type[Struct]) -> None:
    if (wrong := mistake(record, its)) is not None:
        raise TypeError(wrong)


def _refuse(number: str) -> None:
    raise ValueError(f"{number} is not a number")
