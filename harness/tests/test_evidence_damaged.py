"""Evidence with rows or columns that Assay did not write: one line, and nothing else changes."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.tests.test_evidence_merge import made

HARM = {
    "a run that is no JSON": "UPDATE runs SET run = '{'",
    "a run without subjects": "UPDATE runs SET run = '{}'",
    "a run that is a list": "UPDATE runs SET run = '[]'",
    "a result that is no JSON": "UPDATE claims SET result = '{'",
    "a result that lacks all": "UPDATE claims SET result = '{}'",
    "a result of no verdict": "UPDATE claims SET result = json_set(result, '$.verdict', 'maybe')",
    "no verdict in its column": "UPDATE claims SET verdict = 'maybe'",
    "a column less": "ALTER TABLE claims DROP COLUMN margin",
    "a column of runs less": "ALTER TABLE runs DROP COLUMN exit",
    "a table less": "DROP TABLE claims",
}


UNREAD = {
    "a result that is no JSON": {"runs"},
    "a result that lacks all": {"runs", "atlas", "flips"},
    "a result of no verdict": {"runs", "atlas", "flips"},
    "no verdict in its column": {"runs", "compare"},
}
"""Commands that do not read what is damaged."""


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("command", ["runs", "compare", "merge", "atlas", "flips"])
def test_damaged_evidence_is_one_line(
    harm: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harmed = made(tmp_path / "harmed", "r1")
    with closing(sqlite3.connect(harmed)) as db:
        db.execute(HARM[harm])
        db.commit()
    good, out = made(tmp_path / "good", "r1"), tmp_path / "out"
    before = hashlib.sha256(harmed.read_bytes()).hexdigest()
    asked = {
        "runs": [harmed],
        "compare": [good, harmed],
        "merge": [out, good, harmed],
        "atlas": ["--out", out, harmed],
        "flips": [harmed],
    }
    code = main([command, *map(str, asked[command])])
    error = capsys.readouterr().err
    assert hashlib.sha256(harmed.read_bytes()).hexdigest() == before
    if command in UNREAD.get(harm, ()):
        assert code == 0, error
        return
    assert code == 4
    assert error.count("\n") == 1
    assert "damaged" in error
    assert not out.exists()
