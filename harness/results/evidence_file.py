"""The SQLite file that keeps evidence: opened, created, migrated and locked.

The journal is SQLite's rollback journal, not WAL: WAL needs memory shared by all processes,
which network home folders do not give, and leaves a second file behind that a copy would miss.
It costs a few synchronised writes per claim, which claims that take tenths of seconds do not
notice.  Every change is one transaction that takes the write lock at its start, so several
processes queue for at most ``timeout`` seconds and a killed one loses at most its own last claim.
"""

from __future__ import annotations

import functools
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self

from assay.harness.results.cache_folder import cache_folder
from assay.harness.results.errors import BadInput

APPLICATION = int.from_bytes(b"ASAY", "big")
"""Marks the file's header, so that another program's SQLite file is recognised."""

TIMEOUT = 10.0
"""Seconds to wait for another process that holds the file."""

MIGRATIONS = (
    """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        started TEXT NOT NULL,   -- ISO 8601, UTC
        finished TEXT,           -- the same, NULL until then: for ever if it is killed
        exit INTEGER,
        key TEXT NOT NULL,       -- see `resume_key`
        run TEXT NOT NULL        -- JSON: all that is known of the run
    );
    CREATE INDEX runs_by_key ON runs (key, started);
    CREATE TABLE claims (
        run TEXT NOT NULL REFERENCES runs (id),
        claim TEXT NOT NULL,     -- C2
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        subject TEXT NOT NULL,   -- as the user named it
        digest TEXT NOT NULL,    -- of the subject's configuration and weights
        dtype TEXT NOT NULL,
        device TEXT NOT NULL,
        verdict TEXT NOT NULL,
        observed REAL,
        bound REAL,
        margin REAL,             -- decades
        examples INTEGER NOT NULL,
        seconds REAL NOT NULL,
        recorded TEXT NOT NULL,  -- ISO 8601, UTC
        result TEXT NOT NULL,    -- JSON: `Result.as_json`, which the columns above repeat
        UNIQUE (run, claim, subject, name)
    );
    CREATE INDEX claims_by_subject ON claims (digest, claim, name);
    """,
)
"""Script n takes a file from schema n to n + 1.  Append, never edit; a semicolon ends a statement
and stands nowhere else."""

_FULL = "the disk is full; free some space, then run this again (--resume continues the claims)"
_READ_ONLY = "cannot be written; check the permissions or give another file"
_REASONS = {
    sqlite3.SQLITE_BUSY: "locked by another process; wait for it or give another file",
    sqlite3.SQLITE_LOCKED: "locked; wait or give another file",
    sqlite3.SQLITE_NOTADB: "not an SQLite file; give another file",
    sqlite3.SQLITE_CORRUPT: "damaged; move it away or give another file",
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: "cannot be read or written; is the disk full, or gone?",
    sqlite3.SQLITE_CANTOPEN: _READ_ONLY,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
}

MAGIC = b"SQLite format 3\0"
"""The first bytes of every SQLite file."""

_OF_DAMAGE = ("unsupported file format", "Could not decode to UTF-8")
"""Messages about damage whose error code is that of wrong SQL."""


def default_path() -> Path:
    """``assay/evidence.sqlite`` in the user's cache folder; BadInput where there is no home."""
    try:
        return cache_folder() / "evidence.sqlite"
    except RuntimeError as error:
        raise BadInput("evidence: there is no home folder; give --evidence=PATH") from error


class EvidenceFile:
    """An open evidence file; a context manager.

    Every method raises BadInput for what the user can fix: a file that is locked, full, foreign,
    newer, read-only or no SQLite.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path = path
        self._db = db

    def _check_columns(self) -> None:
        """Raise BadInput for a file whose tables lack what Assay writes."""
        tables = _columns_of(self._db)
        for table, columns in _columns().items():
            if missing := sorted(columns - tables.get(table, frozenset())):
                raise damaged(self.path, f"{table} lacks {missing[0]}")

    @classmethod
    def open(cls, path: str | Path | None = None, timeout: float = TIMEOUT) -> Self:
        """Open the file, create or migrate it if needed; wait ``timeout`` seconds for locks."""
        # Absolute, so that SQLite reads no name as special, such as ":memory:".
        path = default_path() if path is None else Path(path).absolute()
        with clear(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                raise BadInput(f"evidence {path}: not a file; name a file with --evidence")
            _refuse_foreign(path)
            evidence = cls(path, sqlite3.connect(path, timeout=timeout, isolation_level=None))
            try:
                evidence._migrate()
                evidence._check_columns()
            except BaseException:
                evidence.close()
                raise
            return evidence

    @classmethod
    def read(cls, path: str | Path, timeout: float = TIMEOUT) -> Self:
        """Open a file for reading only: nothing in it is created or changed.

        A file of an older schema, or one whose last writer was killed in a write, is repaired in a
        copy in memory.
        """
        path = Path(path).absolute()
        with clear(path):
            if not path.is_file():
                raise BadInput(
                    f"evidence {path}: {'not a file' if path.exists() else 'no such file'}"
                )
            if not path.stat().st_size:
                raise BadInput(f"evidence {path}: is empty")
            _refuse_foreign(path)
            evidence = cls(path, _connect(path, timeout))
            try:
                try:
                    old = evidence._schema() < len(MIGRATIONS)
                except sqlite3.OperationalError as error:
                    if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_READONLY_ROLLBACK:
                        raise
                    evidence._db = _rolled_back(path, evidence._db)
                    old = evidence._schema() < len(MIGRATIONS)
                if old:
                    evidence._db = _in_memory(evidence._db)
                    evidence._migrate()
                evidence._check_columns()
            except BaseException:
                evidence.close()
                raise
            return evidence

    def close(self) -> None:
        """Close the file; its records are already on the disk."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All changes made within it or none; the write lock is taken at its start."""
        with clear(self.path):
            try:
                # Take the write lock at once: later, SQLite may deny it without waiting.
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _migrate(self) -> None:
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute("PRAGMA synchronous = FULL")
        # In one transaction, or a file that another process is creating would look foreign.
        self._db.execute("BEGIN")
        version = self._schema()
        self._db.execute("COMMIT")
        if version == len(MIGRATIONS):
            return
        with self._transaction() as db:
            # Read again under the lock: another process may have been faster.
            for script in MIGRATIONS[self._schema() :]:
                for statement in script.split(";"):
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _schema(self) -> int:
        """The schema of the file, 0 for an empty one; BadInput for a foreign or a newer one."""
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        version: int = self._db.execute("PRAGMA user_version").fetchone()[0]
        (entries,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != APPLICATION and (application or version or entries):
            raise BadInput(
                f"evidence {self.path}: SQLite, but of another application; give another file"
            )
        if version < 1 and entries:
            raise BadInput(
                f"evidence {self.path}: damaged: it has tables and no schema's number; move it "
                "away or give another file"
            )
        if version > len(MIGRATIONS):
            raise BadInput(
                f"evidence {self.path}: has schema {version}, this version knows "
                f"{len(MIGRATIONS)}; upgrade Assay or give another file"
            )
        return version


def _begins(path: Path) -> bytes:
    """The first bytes of a file; none if it is not there."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(len(MAGIC))


def _refuse_foreign(path: Path) -> None:
    """Raise BadInput for other files; SQLite takes one of a few bytes for an empty database."""
    try:
        begins = _begins(path)
    except OSError:
        return  # SQLite reports this error itself
    if begins and begins != MAGIC:
        raise BadInput(f"evidence {path}: {_REASONS[sqlite3.SQLITE_NOTADB]}")


def _connect(path: Path, timeout: float) -> sqlite3.Connection:
    """A connection that cannot write."""
    return sqlite3.connect(
        f"{path.as_uri()}?mode=ro", uri=True, timeout=timeout, isolation_level=None
    )


def _in_memory(db: sqlite3.Connection) -> sqlite3.Connection:
    """A copy of ``db``, which is closed."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with closing(db):
        db.backup(copy)
    return copy


def _rolled_back(path: Path, db: sqlite3.Connection) -> sqlite3.Connection:
    """The file without the unfinished write in its journal, which only a writer can undo."""
    db.close()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        for name in (path.name, f"{path.name}-journal"):
            shutil.copyfile(path.with_name(name), copy.with_name(name))
        return _in_memory(sqlite3.connect(copy, isolation_level=None))


def damaged(path: Path, what: str) -> BadInput:
    """The error for a file with rows or columns that Assay did not write."""
    return BadInput(f"evidence {path}: damaged ({what}); move it away or give another file")


@functools.cache
def _columns() -> dict[str, frozenset[str]]:
    """The columns of every table, by its name."""
    with closing(sqlite3.connect(":memory:")) as db:
        for script in MIGRATIONS:
            db.executescript(script)
        return _columns_of(db)


def _columns_of(db: sqlite3.Connection) -> dict[str, frozenset[str]]:
    tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: frozenset(row[1] for row in db.execute(f"PRAGMA table_info({name!r})"))
        for (name,) in tables
    }


@contextmanager
def clear(path: Path) -> Iterator[None]:
    """Turn what the user can fix into BadInput; let our own mistakes (bad SQL) through."""
    try:
        yield
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise damaged(path, f"text of a row: {error}") from error
    except sqlite3.Error as error:
        if "malformed JSON" in str(error):
            raise damaged(path, "JSON of a row") from error
        if any(words in str(error) for words in _OF_DAMAGE):
            raise damaged(path, " ".join(ascii(str(error)).split())[:80]) from error
        # The low byte is the kind of error, the others its details.
        reason = _REASONS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if reason is None:
            raise
        raise BadInput(f"evidence {path}: {reason} ({error})") from error
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise BadInput(
            f"evidence {path}: its folder cannot be used ({why}); give another file"
        ) from error
