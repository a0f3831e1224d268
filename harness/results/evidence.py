"""The evidence: one row per claim, subject and run, written as each ends.

A run is written when it begins and when it ends; in between each claim is one transaction, so a
run that is killed loses at most the claim in flight.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from assay.harness.results import merging
from assay.harness.results.encoding import decode, encode
from assay.harness.results.evidence_file import EvidenceFile, clear, damaged
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import BUDGET, LEFT_OUT, Result

T = TypeVar("T")

EMULATED = ("rounding", "allocation")
"""The options that emulate another machine, as a run records them (`models.loading.emulation`)."""


def resume_key(run: RunRecord) -> str:
    """A digest of what two runs must share for one to resume the other.

    It leaves out subjects, which are matched claim by claim, by their own digest.
    """
    versions = [run.versions[name] for name in ("python", "torch", "transformers")]
    names = ("suite", "dtype", "device", "attention", "profile", "seed", "attends", "bitwise")
    settings = [getattr(run, name) for name in (*names, "layers", *EMULATED)]
    return hashlib.sha256(json.dumps([versions, settings]).encode()).hexdigest()


class Evidence(EvidenceFile):
    """An open evidence file: runs and their claims."""

    def begin(self, run: RunRecord) -> None:
        """Write that ``run`` is under way.

        A run that is already in the file is resumed: it keeps its start and its recorded claims,
        except those of a subject that now has other weights under the same name.  Subjects add up.
        """
        with self._transaction() as db:
            whole = replace(run, finished=None, exit=None)
            if db.execute("SELECT 1 FROM runs WHERE id = ?", (run.id,)).fetchone():
                before = self._run(run.id)
                whole.started, whole.subjects = before.started, before.subjects | run.subjects
            db.execute(merging.RUN, (run.id, resume_key(run), encode(whole)))
            merging.forget(db, whole)

    def record(self, run_id: str, result: Result, digest: str) -> None:
        """Write one finished claim on the subject with ``digest``; it is on the disk on return.

        The same claim, subject and name recorded again in one run replaces the earlier row.
        Raises sqlite3.IntegrityError where the run did not begin.
        """
        row = (run_id, result.id, result.name, result.subject, digest, _now(), encode(result))
        with self._transaction() as db:
            db.execute(merging.CLAIM, row)

    def finish(self, run_id: str, exit: int) -> None:
        """Write that the run ended now, with this exit code: it is never resumed.

        Raises KeyError where it did not begin.
        """
        with self._transaction() as db:
            run = replace(self._run(run_id), finished=_now(), exit=exit)
            db.execute("UPDATE runs SET run = ? WHERE id = ?", (encode(run), run_id))

    def add(self, run: RunRecord, results: Sequence[Result], digest: str, exit: int) -> None:
        """Write a whole run on the subject with ``digest``, which ends now."""
        self.begin(run)
        for result in results:
            self.record(run.id, result, digest)
        self.finish(run.id, exit)

    def merge(self, *others: Evidence) -> tuple[int, int]:
        """Copy every run and claim of ``others`` that is not here, all or nothing.

        Of a claim in two copies of one run it keeps the one recorded later, and none about weights
        that a later copy has replaced (see `begin`).  Merging the same files again changes
        nothing.  Returns how many runs and claims were added.
        """
        with self._transaction() as db:
            before = merging.size(db)
            for other in others:
                # A file has all of its own already, and may not be read while it is written.
                if not (other.path.exists() and other.path.samefile(self.path)):
                    merging.merge(db, other._copies())
            after = merging.size(db)
        return after[0] - before[0], after[1] - before[1]

    def _copies(self) -> Iterator[merging.Copy]:
        """Every run and its claims; an error about them names this file."""
        with clear(self.path):
            yield from merging.copies(self._db)

    def runs(self) -> list[RunRecord]:
        """Every run, with its finish and exit code once it ended; oldest first."""
        rows = self._rows(
            "SELECT id, run FROM runs ORDER BY json_extract(run, '$.started'), rowid"
        )
        return [replace(self._decoded(text, RunRecord), id=id) for id, text in rows]

    def counts(self) -> dict[str, int]:
        """The number of recorded claims by run id, for runs that have any."""
        with clear(self.path):
            return dict(self._db.execute("SELECT run, count(*) FROM claims GROUP BY run"))

    def results(self, run_id: str) -> list[Result]:
        """The claims recorded in this run, in the order in which they were first recorded."""
        return [result for _, result in self._results(run_id)]

    def recorded(self, run_id: str) -> dict[tuple[str, str, str], Result]:
        """Results by (claim's name, subject's name, subject's digest): a resume skips these."""
        pairs = self._results(run_id)
        return {(result.name, result.subject, digest): result for digest, result in pairs}

    def _results(self, run_id: str) -> list[tuple[str, Result]]:
        rows = self._rows("SELECT digest, result FROM claims WHERE run = ? ORDER BY rowid", run_id)
        return [(digest, self._decoded(text, Result)) for digest, text in rows]

    def check(self) -> None:
        """Raise BadInput where runs or results are not as Assay writes them."""
        ids = [run.id for run in self.runs()]
        if strays := self.counts().keys() - set(ids):
            raise damaged(self.path, f"results of {min(strays, key=str)!r}, which is no run")
        for id in ids:
            self.results(id)

    def unfinished(self, key: str) -> str | None:
        """The latest run with this `resume_key` that can be resumed, if there is one: it has no
        finish, or its budget left claims out.

        A run that is still going in another process looks the same in the file.
        """
        rows = self._rows(
            "SELECT id FROM runs WHERE key = ? AND (json_extract(run, '$.finished') IS NULL OR "
            "EXISTS (SELECT 1 FROM claims WHERE claims.run = runs.id AND "
            "json_extract(result, ?) = ?)) ORDER BY json_extract(run, '$.started'), rowid",
            *(key, f'$.details."{LEFT_OUT}"', BUDGET),
        )
        ids = [id for (id,) in rows]
        return ids[-1] if ids else None

    def _run(self, run_id: str) -> RunRecord:
        for (text,) in self._rows("SELECT run FROM runs WHERE id = ?", run_id):
            return self._decoded(text, RunRecord)
        raise KeyError(run_id)

    def _rows(self, query: str, *values: str) -> Iterator[tuple[str, ...]]:
        """The rows of a query, all of text; raises BadInput."""
        with clear(self.path):
            for row in self._db.execute(query, values):
                try:
                    yield msgspec.convert(row, tuple[str, ...])
                except msgspec.ValidationError as error:
                    raise damaged(self.path, str(error)) from error

    def _decoded(self, text: str, kind: type[T]) -> T:
        with clear(self.path):
            return decode(text, kind)


def _now() -> str:
    return datetime.now(UTC).isoformat()
