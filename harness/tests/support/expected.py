"""Results, and files of expectations about them, written as text."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from assay.harness.results.verdicts import Kind, Result, Verdict

LAW, FINDING = Kind.LAW, Kind.FINDING
UPHELD, REFUTED = Verdict.UPHELD, Verdict.REFUTED
OPEN, NOT = Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE


def result(id="C8", verdict=UPHELD, kind=FINDING, name="they agree", subject="m", reason=""):
    return Result(id, name, kind, subject, verdict, reason=reason)


def write(folder: Path, text: str, name: str = "m.toml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def entry(**values: str) -> str:
    lines = [f'{key} = "{value}"' for key, value in values.items()]
    return "\n".join(["", "[[claim]]", *lines, ""])


def together(*claims: str, **values: str) -> str:
    return entry(**values) + f"claims = {json.dumps(claims)}\n"


def claims_in(text: str) -> list[dict]:
    """The entries of a file as another reader has them, those of several claims one by one."""
    rows = []
    for row in tomllib.loads(text).get("claim", []):
        for label in row.pop("claims", [None]):
            claim, colon, name = (label or "").partition(": ")
            rows.append(row | ({"id": claim} if label else {}) | ({"name": name} if colon else {}))
    return rows


MODEL = 'model = "m"\n'
C8 = entry(id="C8", verdict="refuted", reason="because")
