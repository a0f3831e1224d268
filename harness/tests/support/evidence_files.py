"""Results, runs and files of evidence for tests of the store, sound and damaged."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Counterexample, Kind, Result, Verdict
from assay.harness.tests.support.sessions import ROOT

DIGEST, OTHER = "a" * 64, "b" * 64
UPHELD = Result("C1", "a prefix stays", Kind.LAW, "tiny:gpt2", Verdict.UPHELD, 1e-7, 1e-5, 2.0)
BROKEN = Result(
    *("C2", "cached is recomputed [static]", Kind.LAW, "tiny:gpt2", Verdict.REFUTED),
    observed=0.5,
    bound=1e-5,
    margin=-4.7,
    interval=(0.4, 0.6),
    examples=7,
    seconds=1.25,
    reason="a 'quoted' reason,\nin two lines",
    counterexample=Counterexample({"tokens": "Ġa \x00"}, replay="pytest -k C2"),
    details={"layers": [1, 2], "none": None},
)


def write(path: Path, run: RunRecord, results: Iterable[Result], finished: bool = True) -> Path:
    """An evidence file, made or added to, with a run of these results."""
    with Evidence.open(path) as store:
        store._db.execute("PRAGMA synchronous = OFF")  # thousands of claims, in a test
        store.begin(run)
        for result in results:
            store.record(run.id, result, DIGEST)
        if finished:
            store.finish(run.id, 0)
    return path


def a_run(id: str = "r1", started: str = "2026-01-01T00:00:00+00:00", **changes: Any) -> RunRecord:
    """A run with one subject, and these entries changed."""
    versions = {"python": "3.11.2", "torch": "2.13.0", "transformers": "5.23.0", "numpy": "2.4"}
    run = {"id": id, "started": started, "suite": "0.1.0", "profile": "quick", "seed": 0}
    run |= {"device": "cpu", "dtype": "float32", "attention": None, "versions": versions}
    run["subjects"] = {"tiny:gpt2": {"digest": DIGEST}}
    return msgspec.convert(run | changes, RunRecord)


def refused(error: pytest.ExceptionInfo[BadInput], path: Path, words: str) -> bool:
    """Whether the message is one line that names the path and says this."""
    message = str(error.value)
    return "\n" not in message and str(path) in message and words in message


def rows(path: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def child(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """A process of its own that runs ``code`` with `a_run`, `UPHELD` and `Evidence` at hand."""
    imports = "import sys; from msgspec.structs import replace\n"
    imports += "from assay.harness.tests.support.evidence_files import a_run, Evidence, UPHELD\n"
    command = [sys.executable, "-c", imports + code, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **pipes, **options)


def truncated(path: Path) -> None:
    Evidence.open(path).close()
    os.truncate(path, 5000)


def scribbled(path: Path) -> None:
    Evidence.open(path).close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)


def of_version(path: Path, version: int) -> None:
    Evidence.open(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")


def foreign(path: Path, script: str = "CREATE TABLE notes (text)") -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)


MISFITS = {
    "text": (lambda path: path.write_text("hello"), "not an SQLite file"),
    "long text": (lambda path: path.write_text("hello\n" * 9999), "not an SQLite file"),
    "truncated": (truncated, "damaged"),
    "scribbled": (scribbled, "damaged"),
    "tables of another": (foreign, "of another application"),
    "id of another": (lambda p: foreign(p, "PRAGMA application_id = 5"), "another application"),
    "version of another": (lambda p: foreign(p, "PRAGMA user_version = 1"), "another application"),
    "older": (lambda path: of_version(path, 1), "has version 1, and this Assay reads 2 only"),
    "newer": (lambda path: of_version(path, 7), "has version 7, and this Assay reads 2 only"),
    "folder": (Path.mkdir, "not a file"),
    "pipe": (os.mkfifo, "not a file"),
}


def made(path: Path, *runs: str, claims: int = 3, end: bool = True) -> Path:
    """An evidence file with these runs, of so many claims each."""
    for run in runs:
        results = [replace(UPHELD, name=f"{run} {number}") for number in range(claims)]
        write(path, a_run(run), results, end)
    return path
