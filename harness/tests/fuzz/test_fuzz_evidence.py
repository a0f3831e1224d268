"""Evidence and reports that are damaged at random: read, or refused in one line."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.tests.support.fuzz_inputs import room
from assay.harness.tests.support.fuzzing import cases
from assay.harness.tests.support.mutations import broken, jsons, scalars

READERS: dict[str, list[str]] = {
    "runs": ["runs", "after.sqlite"],
    "compare": ["compare", "before.sqlite", "after.sqlite@all"],
    "compare as JSON": ["compare", "after.sqlite@1", "after.sqlite@2", "--json"],
    "merge": ["merge", "out.sqlite", "before.sqlite", "after.sqlite"],
    "report": ["report", "before.sqlite", "after.sqlite@all", "--out=out.html"],
}
"""Commands that read evidence."""


def columns(path: Path) -> dict[str, list[str]]:
    """The columns of every table."""
    with closing(sqlite3.connect(path)) as db:
        return {
            table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            for table in ("runs", "claims")
        }


def write_over(path: Path, data: st.DataObject) -> None:
    """Change a column of one row, or of all: to an odd value, or to the JSON in it changed."""
    tables = columns(path)
    table = data.draw(st.sampled_from(sorted(tables)))
    column = data.draw(st.sampled_from(tables[table]))
    row = data.draw(st.integers(1, 8))
    with closing(sqlite3.connect(path)) as db:
        (value,) = db.execute(
            f"SELECT {column} FROM {table} WHERE rowid >= ? OR true ORDER BY rowid = ? DESC",
            (row, row),
        ).fetchone()
        tree = None
        with contextlib.suppress(TypeError, ValueError):  # it may have been written over before
            tree = json.loads(value)
        if isinstance(tree, dict):
            new: Any = data.draw(jsons(tree)).decode(errors="surrogateescape")
        else:
            odd = scalars().filter(lambda each: not isinstance(each, int) or each < 2**63)
            new = data.draw(odd | st.binary(max_size=4))
        where = data.draw(st.sampled_from(["rowid = ?", "? > 0"]))
        with contextlib.suppress(sqlite3.IntegrityError, UnicodeEncodeError):
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (new, row))
        db.commit()


@pytest.mark.parametrize("reader", READERS)
@cases(0.025)
@given(data=st.data())
def test_any_rows(stocked: Path, reader: str, data: st.DataObject) -> None:
    with room(stocked) as here:
        for _ in range(data.draw(st.integers(1, 2))):
            write_over(here.work / "after.sqlite", data)
        here.check("harness", *READERS[reader])


RESUMED = ("--model=tiny:gpt2", "--evidence=resumed.sqlite", "--resume")


@pytest.fixture(scope="module")
def resumable(stocked: Path) -> Path:
    """Inputs with evidence of a run that did not come to its end."""
    with room(stocked) as here:
        here.check("pytest", *RESUMED)
        with closing(sqlite3.connect(here.work / "resumed.sqlite")) as db:
            db.execute("UPDATE runs SET run = json_set(run, '$.finished', NULL)")
            db.commit()
        shutil.copy(here.work / "resumed.sqlite", stocked)
    return stocked


@cases(0.015)
@given(data=st.data())
def test_any_rows_of_a_run_that_is_resumed(resumable: Path, data: st.DataObject) -> None:
    with room(resumable) as here:
        write_over(here.work / "resumed.sqlite", data)
        here.check("pytest", *RESUMED)


@cases(0.05)
@given(data=st.data())
def test_any_bytes_in_place_of_evidence(stocked: Path, data: st.DataObject) -> None:
    reader = data.draw(st.sampled_from(sorted(READERS)))
    with room(stocked) as here:
        path = here.work / "after.sqlite"
        path.write_bytes(data.draw(broken(path.read_bytes())))
        here.check("harness", *READERS[reader])


@cases(0.07)
@given(data=st.data())
def test_any_report(stocked: Path, data: st.DataObject) -> None:
    with room(stocked) as here:
        path = here.work / "run.json"
        path.write_bytes(data.draw(jsons(json.loads(path.read_text()))))
        others = data.draw(st.sampled_from([["--json"], []]))
        here.check("harness", "compare", "before.sqlite", "run.json", *others)
