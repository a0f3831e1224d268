"""Evidence with rows or columns that Assay did not write: one line, and nothing else changes."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from assay.harness.cli.main import main
from assay.harness.tests.support.evidence_files import made

HARM = {
    "a run that is no JSON": "UPDATE runs SET run = '{'",
    "a run without subjects": "UPDATE runs SET run = '{}'",
    "a run that is a list": "UPDATE runs SET run = '[]'",
    "a result that is no JSON": "UPDATE claims SET result = '{'",
    "a result that lacks all": "UPDATE claims SET result = '{}'",
    "a result of no verdict": "UPDATE claims SET result = json_set(result, '$.verdict', 'maybe')",
    "a kind that is an object": (
        "UPDATE claims SET result = json_set(result, '$.kind', json('{}'))"
    ),
    "no verdict in its column": "UPDATE claims SET verdict = 'maybe'",
    "a column less": "ALTER TABLE claims DROP COLUMN margin",
    "a column of runs less": "ALTER TABLE runs DROP COLUMN exit",
    "a table less": "DROP TABLE claims",
    "a time that is no text": "UPDATE runs SET started = x'00'",
    "a run of another id": "UPDATE runs SET id = x'00'",
    "a run without versions": "UPDATE runs SET run = json_set(run, '$.versions', json('{}'))",
    "a run without a suite": "UPDATE runs SET run = json_remove(run, '$.suite')",
    "a subject without a digest": "UPDATE runs SET run = json_set(run, '$.subjects', "
    "json('{\"x\": {}}'))",
    "results of no run": "UPDATE claims SET run = 'r9'",
    "a margin that is a list": "UPDATE claims SET result = json_set(result, '$.margin', "
    "json('[]'))",
    "a column that is bytes": "UPDATE claims SET margin = x'00'",
    "no kind in its column": "UPDATE claims SET kind = 'maybe'",
    "an infinite number": "UPDATE claims SET result = replace(result, '{', '{\"x\": Infinity, ')",
    "text in another code": "UPDATE claims SET subject = cast(x'ff' AS TEXT)",
}


UNREAD = {
    "a result that is no JSON": {"runs"},
    "a result that lacks all": {"runs"},
    "a result of no verdict": {"runs"},
    "a kind that is an object": {"runs"},
    "no verdict in its column": {"runs", "compare", "report"},
    "results of no run": {"runs"},
    "a margin that is a list": {"runs"},
    "a column that is bytes": {"runs", "compare", "report"},
    "no kind in its column": {"runs", "compare", "report"},
    "an infinite number": {"runs"},
    "text in another code": {"runs", "compare", "report"},
}
"""Commands that do not read what is damaged."""


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("command", ["runs", "compare", "merge", "report"])
def test_damaged_evidence_is_one_line(
    harm: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harmed = made(tmp_path / "harmed", "r1")
    with closing(sqlite3.connect(harmed)) as db:
        db.execute(HARM[harm])
        db.commit()
    good, out = made(tmp_path / "good", "r1"), tmp_path / "out"
    before = hashlib.sha256(harmed.read_bytes()).hexdigest()
    arguments = {
        "runs": [harmed],
        "compare": [good, harmed],
        "merge": [out, good, harmed],
        "report": ["--out", out, harmed],
    }
    code = main([command, *map(str, arguments[command])])
    error = capsys.readouterr().err
    assert hashlib.sha256(harmed.read_bytes()).hexdigest() == before
    if command in UNREAD.get(harm, ()):
        assert code == 0, error
        return
    assert code == 4
    assert error.count("\n") == 1
    empty = command in ("compare", "report") and harm == "results of no run"
    said = f"{harmed}: the run has no results" if empty else f"evidence {harmed}: damaged ("
    assert said in error
    assert not out.exists()
