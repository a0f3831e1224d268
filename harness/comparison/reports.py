"""A JSON report of a run (`--json`), read again: checked as far as a comparison relies on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import schema
from harness.errors import BadInput
from harness.verdicts import Kind, Verdict

Json = Mapping[str, Any]

_NUMBER = (int, float, type(None))
_TEXT = (str, type(None))

OF_A_RUN = {
    **dict.fromkeys(("id", "started", "finished", "suite", "profile", "device", "dtype"), _TEXT),
    **{"exit": (int, type(None)), "seed": (int, type(None)), "versions": (dict, type(None))},
}
OF_A_CLAIM = {
    **dict.fromkeys(("id", "name", "subject"), (str,)),
    **dict.fromkeys(("margin", "observed", "bound"), _NUMBER),
    **{"details": (dict,), "counterexample": (dict, type(None)), "reason": (str,)},
}
"""What entries are that have to be of some type; those that are left out pass."""

NEEDED = ("id", "name", "subject", "verdict", "kind", "margin", "observed")


def read(path: Path) -> tuple[Json, list[Json]]:
    """The run and its claims; raises `BadInput`."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["schema"] != schema.VERSION:
            raise BadInput(
                f"{path}: has schema {told['schema']}, this version knows {schema.VERSION}"
            )
        run = {**told["run"], "subjects": {**told["run"]["subjects"]}}
        _check(run, OF_A_RUN)
        for row in told["claims"]:
            [row[name] for name in NEEDED]
            Verdict(row["verdict"]), Kind(row["kind"])
            _check(row, OF_A_CLAIM)
        # Samples are in the evidence only; what else stands there is not this report's.
        return run, [{**row, "sample": {}} for row in told["claims"]]
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path}: is no report of a run (write one by --json)") from error


def _check(entries: Json, types: Mapping[str, tuple[type, ...]]) -> None:
    for name, value in entries.items():
        if not isinstance(value, types.get(name, object)):
            raise TypeError(name)
