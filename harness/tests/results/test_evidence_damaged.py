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
    "a run of other types": "UPDATE runs SET run = json_set(run, '$.versions', 5)",
    "a time that is no text": "UPDATE runs SET run = json_set(run, '$.started', 5)",
    "a result that is no JSON": "UPDATE claims SET result = '{'",
    "a result of no verdict": "UPDATE claims SET result = json_set(result, '$.verdict', 'maybe')",
    "a column that is bytes": "UPDATE claims SET digest = x'00'",
    "an infinite number": "UPDATE claims SET result = replace(result, '{', '{\"x\": Infinity, ')",
    "text in another code": "UPDATE claims SET digest = cast(x'ff' AS TEXT)",
}


EACH = [("compare", harm) for harm in HARM]
ONE = [(command, "a run of other types") for command in ("runs", "merge", "report")]


@pytest.mark.parametrize(("command", "harm"), [*EACH, *ONE])
def test_damaged_evidence_is_one_line(
    command: str, harm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    assert code == 4
    assert error.count("\n") == 1
    assert f"evidence {harmed}: damaged (" in error
    assert not out.exists()


def test_results_of_no_run_are_not_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harmed, out = made(tmp_path / "harmed", "r1"), tmp_path / "out"
    with closing(sqlite3.connect(harmed)) as db:
        db.execute("UPDATE claims SET run = 'r9'")
        db.commit()
    assert main(["merge", str(out), str(harmed)]) == 4
    assert "damaged (results of 'r9', which is no run)" in capsys.readouterr().err
    assert not out.exists()
