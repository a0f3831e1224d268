"""The SQLite file that keeps evidence: opened, created and locked.

The journal is SQLite's rollback journal, not WAL: WAL needs memory shared by all processes,
which network home folders do not give, and leaves a second file behind that a copy would miss.
It costs a few synchronised writes per claim, which claims that take tenths of seconds do not
notice.  Every change is one transaction that takes the write lock at its start, so several
processes queue for at most ``timeout`` seconds and a killed one loses at most its own last claim.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self

from assay.harness.results.cache_folder import cache_folder
from assay.harness.results.encoding import Unreadable
from assay.harness.results.errors import BadInput

APPLICATION = int.from_bytes(b"ASAY", "big")
"""Marks the file's header, so that another program's SQLite file is recognised."""

TIMEOUT = 10.0
"""Seconds to wait for another process that holds the file."""

VERSION = 2
"""Version of the tables and of the records in them; no other one is read."""

TABLES = (
    """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        key TEXT NOT NULL,       -- see `resume_key`
        run TEXT NOT NULL        -- JSON: `RunRecord`
    )
    """,
    """
    CREATE TABLE claims (
        run TEXT NOT NULL REFERENCES runs (id),
        claim TEXT NOT NULL,     -- C2
        name TEXT NOT NULL,
        subject TEXT NOT NULL,   -- as the user named it
        digest TEXT NOT NULL,    -- of the subject's configuration and weights
        recorded TEXT NOT NULL,  -- ISO 8601, UTC
        result TEXT NOT NULL,    -- JSON: `Result`
        UNIQUE (run, claim, subject, name)
    )
    """,
)

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

_OF_DAMAGE = ("unsupported file format", "Could not decode to UTF-8", "malformed JSON")
"""Messages about damage whose error code is that of wrong SQL."""


def default_path() -> Path:
    """``assay/evidence-VERSION.sqlite`` in the user's cache folder; BadInput without a home.

    With the version in its name, a file of an earlier Assay is left as it is.
    """
    try:
        return cache_folder() / f"evidence-{VERSION}.sqlite"
    except RuntimeError as error:
        raise BadInput("evidence: there is no home folder; give --evidence=PATH") from error


class EvidenceFile:
    """An open evidence file; a context manager.

    Every method raises BadInput for what the user can fix: a file that is locked, full, foreign,
    of another version, read-only or no SQLite.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path = path
        self._db = db

    @classmethod
    def open(cls, path: str | Path | None = None, timeout: float = TIMEOUT) -> Self:
        """Open the file, created if missing; wait ``timeout`` seconds for locks."""
        # Absolute, so that SQLite reads no name as special, such as ":memory:".
        path = default_path() if path is None else Path(path).absolute()
        with clear(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                raise BadInput(f"evidence {path}: not a file; name a file with --evidence")
            _refuse_foreign(path)
            evidence = cls(path, sqlite3.connect(path, timeout=timeout, isolation_level=None))
            with evidence._closed_on_error():
                evidence._create()
            return evidence

    @classmethod
    def read(cls, path: str | Path, timeout: float = TIMEOUT) -> Self:
        """Open a file for reading only: nothing in it is created or changed.

        A file whose last writer was killed in a write is repaired in a copy in memory.
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
            address = f"{path.as_uri()}?mode=ro"
            evidence = cls(
                path, sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None)
            )
            with evidence._closed_on_error():
                try:
                    evidence._check_version()
                except sqlite3.OperationalError as error:
                    if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_READONLY_ROLLBACK:
                        raise
                    evidence.close()
                    evidence._db = _rolled_back(path)
                    evidence._check_version()
            return evidence

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

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

    def _create(self) -> None:
        """Make the tables of a new file; raises BadInput for a file that is not ours."""
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute("PRAGMA synchronous = FULL")
        # In one transaction, or a file that another process is creating would look foreign.
        self._db.execute("BEGIN")
        new = self._is_new()
        self._db.execute("COMMIT")
        if new:
            with self._transaction() as db:
                if self._is_new():  # under the lock: another process may have been faster
                    for table in TABLES:
                        db.execute(table)
                    db.execute(f"PRAGMA application_id = {APPLICATION}")
                    db.execute(f"PRAGMA user_version = {VERSION}")
        self._check_version()

    def _is_new(self) -> bool:
        """Whether the file is an empty database."""
        return (
            self._header() == (0, 0)
            and not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        )

    def _header(self) -> tuple[int, int]:
        """The number of the application that made the file, and that of its version."""
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        return application, version

    def _check_version(self) -> None:
        """Raise BadInput unless the file has the tables of this version of Assay."""
        application, version = self._header()
        self._db.execute("SELECT 1 FROM sqlite_master").fetchall()  # a damaged file fails here
        if application != APPLICATION:
            raise BadInput(
                f"evidence {self.path}: SQLite, but of another application; give another file"
            )
        if version != VERSION:
            raise BadInput(
                f"evidence {self.path}: has version {version}, and this Assay reads {VERSION} "
                "only; move it away or give another file"
            )


def _refuse_foreign(path: Path) -> None:
    """Raise BadInput for other files; SQLite takes one of a few bytes for an empty database."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(MAGIC))
    except OSError:
        return  # it is not there, or SQLite reports this error itself
    if begins and begins != MAGIC:
        raise BadInput(f"evidence {path}: {_REASONS[sqlite3.SQLITE_NOTADB]}")


def _rolled_back(path: Path) -> sqlite3.Connection:
    """The file without the unfinished write in its journal, which only a writer can undo."""
    memory = sqlite3.connect(":memory:", isolation_level=None)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        for name in (path.name, f"{path.name}-journal"):
            shutil.copyfile(path.with_name(name), copy.with_name(name))
        with closing(sqlite3.connect(copy, isolation_level=None)) as db:
            db.backup(memory)
    return memory


def damaged(path: Path, what: str) -> BadInput:
    """The error for a file with rows that Assay did not write."""
    return BadInput(f"evidence {path}: damaged ({what}); move it away or give another file")


@contextmanager
def clear(path: Path) -> Iterator[None]:
    """Turn what the user can fix into BadInput; let our own mistakes (bad SQL) through."""
    try:
        yield
    except Unreadable as error:
        raise damaged(path, f"JSON of a row: {error}") from error
    except sqlite3.Error as error:
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
