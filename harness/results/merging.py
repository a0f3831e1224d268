"""Merges one evidence file into another: every run and claim once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from assay.harness.results.encoding import decode, encode
from assay.harness.results.records import RunRecord

RUN = """
    INSERT INTO runs (id, key, run) VALUES (?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET key = excluded.key, run = excluded.run
"""
"""Writes a run, also over an earlier record of it."""

CLAIM = """
    INSERT INTO claims (run, claim, name, subject, digest, recorded, result)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, claim, subject, name) DO UPDATE SET
    digest = excluded.digest, recorded = excluded.recorded, result = excluded.result
"""
"""Writes a claim, also over an earlier record of it."""

_LATER_CLAIM = f"{CLAIM} WHERE excluded.recorded > recorded"
_CLAIMS = "SELECT run, claim, name, subject, digest, recorded, result FROM claims"


@dataclass(frozen=True)
class Copy:
    """A run with its key and claims, and when the last of them was recorded."""

    run: RunRecord
    key: str
    latest: str
    claims: list[tuple[str, ...]]


def size(db: sqlite3.Connection) -> tuple[int, int]:
    """The numbers of runs and claims."""
    counts: tuple[int, int] = db.execute(
        "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM claims)"
    ).fetchone()
    return counts


def copies(db: sqlite3.Connection, only: str | None = None) -> Iterator[Copy]:
    """Every run of ``db``, each read on demand; or the ``only`` one of this id, if it is there."""
    query = "SELECT id, key, run FROM runs WHERE ?1 IS NULL OR id = ?1 ORDER BY rowid"
    for id, key, text in db.execute(query, (only,)).fetchall():
        claims = db.execute(f"{_CLAIMS} WHERE run = ? ORDER BY rowid", (id,)).fetchall()
        latest = max((recorded for *_, recorded, _ in claims), default="")
        yield Copy(decode(text, RunRecord), key, latest, claims)


def merge(db: sqlite3.Connection, others: Iterable[Copy]) -> None:
    """Put ``others`` into ``db``, in the caller's transaction.

    Of two copies of one run the one that went on for longer wins.
    """
    for other in others:
        last, run = other, other.run
        for mine in copies(db, run.id):
            first, last = sorted(
                [mine, other], key=lambda each: (each.run.finished or "", each.latest)
            )
            run = replace(last.run, subjects=first.run.subjects | last.run.subjects)
        db.execute(RUN, (run.id, last.key, encode(run)))
        db.executemany(_LATER_CLAIM, other.claims)
        forget(db, run)


def forget(db: sqlite3.Connection, run: RunRecord) -> None:
    """Remove the claims of a run that are about other weights than its subjects have."""
    for name, subject in run.subjects.items():
        db.execute(
            "DELETE FROM claims WHERE run = ? AND subject = ? AND digest <> ?",
            (run.id, name, subject.digest),
        )
