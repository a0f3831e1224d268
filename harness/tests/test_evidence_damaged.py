"""Evidence with rows or columns that Assay did not write: one line, and nothing else changes."""

from __future__ import annotations

import hashlib
import shutil
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


@pytest.fixture(params=HARM.values(), ids=HARM)
def harmed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = made(tmp_path / "harmed", "r1")
    with closing(sqlite3.connect(path)) as db:
        db.execute(request.param)
        db.commit()
    return path


@pytest.mark.parametrize("command", ["runs", "compare", "merge", "atlas", "flips"])
def test_damaged_evidence_is_one_line(
    harmed: Path, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = shutil.copy(made(tmp_path / "good", "r1"), tmp_path / "other")
    before = hashlib.sha256(harmed.read_bytes()).hexdigest()
    out = tmp_path / "out"
    asked = {
        "runs": [harmed],
        "compare": [good, harmed],
        "merge": [out, good, harmed],
        "atlas": ["--out", out, harmed],
        "flips": [harmed],
    }
    code = main([command, *map(str, asked[command])])
    told = capsys.readouterr()
    assert hashlib.sha256(harmed.read_bytes()).hexdigest() == before
    if code == 4:  # a command need not read all of a file
        assert told.err.count("\n") == 1
        assert "damaged" in told.err
        assert not out.exists()
    else:
        assert code in (0, 1), told.err
        assert "Traceback" not in told.err
