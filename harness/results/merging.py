"""Merges one evidence file into another: every run and claim once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from assay.harness.results.encoding import decode, encode
from assay.harness.results.records import RunRecord

Row = dict[str, Any]

CLAIM = "(run, claim, subject, name)"
"""The columns that identify a claim."""


def size(db: sqlite3.Connection) -> tuple[int, int]:
    """The numbers of runs and claims."""
    counts: tuple[int, int] = db.execute(
        "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM claims)"
    ).fetchone()
    return counts


@dataclass(frozen=True)
class Copy:
    """A run with its claims, and when the last of them was recorded."""

    run: Row
    claims: list[Row]
    latest: str


def copies(db: sqlite3.Connection) -> Iterator[Copy]:
    """Every run of ``db``, each read on demand."""
    for run in _table(db, "SELECT * FROM runs ORDER BY rowid"):
        claims = _table(db, "SELECT * FROM claims WHERE run = ? ORDER BY rowid", run["id"])
        yield Copy(run, claims, _latest(db, run["id"]))


def merge(db: sqlite3.Connection, others: Iterable[Copy]) -> None:
    """Put ``others`` into ``db``, in the caller's transaction."""
    for other in others:
        run = other.run
        if mine := _table(db, "SELECT * FROM runs WHERE id = ?", run["id"]):
            run = _of_both(mine[0], _latest(db, run["id"]), run, other.latest)
        insert(db, "runs", [run], "(id)")
        insert(db, "claims", other.claims, CLAIM, "excluded.recorded > recorded")
        forget(db, decode(run["run"], RunRecord))


def forget(db: sqlite3.Connection, run: RunRecord) -> None:
    """Remove the claims of a run that are about other weights than its subjects have."""
    for name, subject in run.subjects.items():
        db.execute(
            "DELETE FROM claims WHERE run = ? AND subject = ? AND digest <> ?",
            (run.id, name, subject.digest),
        )


def _of_both(mine: Row, my_latest: str, other: Row, other_latest: str) -> Row:
    """One run from two copies: the one that went on for longer wins."""
    one, two = (decode(row["run"], RunRecord) for row in (mine, other))
    mine_wins = (one.finished or "", my_latest) > (two.finished or "", other_latest)
    old, new, row = (two, one, mine) if mine_wins else (one, two, other)
    return {**row, "run": encode(replace(new, subjects=old.subjects | new.subjects))}


def _latest(db: sqlite3.Connection, run: str) -> str:
    """When the last claim of a run was recorded."""
    query = "SELECT coalesce(max(recorded), '') FROM claims WHERE run = ?"
    latest: str = db.execute(query, (run,)).fetchone()[0]
    return latest


def _table(db: sqlite3.Connection, query: str, *values: object) -> list[Row]:
    cursor = db.execute(query, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def insert(
    db: sqlite3.Connection, table: str, rows: list[Row], key: str, newer: str = "true"
) -> None:
    """Insert ``rows``; they replace rows of the same ``key`` where they are ``newer``."""
    if not rows:
        return
    names = list(rows[0])
    parameters = ", ".join(f":{name}" for name in names)
    updates = ", ".join(f"{name} = excluded.{name}" for name in names)
    db.executemany(
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({parameters}) "
        f"ON CONFLICT {key} DO UPDATE SET {updates} WHERE {newer}",
        rows,
    )
