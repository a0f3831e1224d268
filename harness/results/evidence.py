"""The evidence: one row per claim, subject and run, written as each ends.

A run is written when it begins and when it ends; in between each claim is one transaction, so a
run that is killed loses at most the claim in flight.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from assay.harness.results import merging
from assay.harness.results.evidence_file import EvidenceFile, clear, damaged
from assay.harness.results.json_schema import mistake
from assay.harness.results.records import RunRecord
from assay.harness.results.schema import Claim, Run
from assay.harness.results.verdicts import BUDGET, LEFT_OUT, Kind, Result, Verdict

EMULATED = ("rounding", "allocation")
"""The options that emulate another machine, as a run records them (`harness.models.emulation`)."""

_REPEATED = ["name", "kind", "subject", "verdict", "observed", "bound", "margin"]
_REPEATED += ["examples", "seconds"]
"""The entries of a result that have a column of their own under the same name."""

OF_A_RUN = (
    *("id", "suite", "profile", "seed", "device", "dtype", "attention"),
    *("versions", "subjects"),
)
OF_A_CLAIM = (
    *("id", "name", "kind", "subject", "verdict", "observed", "bound", "margin"),
    "examples",
)
"""The entries that every version writes."""


class Row(Claim, kw_only=True):
    """The columns of a claim."""

    run: str
    claim: str
    digest: str
    dtype: str
    device: str
    recorded: str


COLUMNS = ("run", "claim", "digest", "dtype", "device", "recorded", *_REPEATED)
"""The columns of a claim other than its JSON."""


def resume_key(run: RunRecord) -> str:
    """A digest of what two runs must share for one to resume the other.

    It leaves out subjects, which are matched claim by claim, by their own digest.
    """
    versions = [run.versions[name] for name in ("python", "torch", "transformers")]
    settings: list[Any] = [run.suite, run.dtype, run.device, run.attention, run.profile, run.seed]
    emulated = {name: value for name in EMULATED if (value := getattr(run, name)) is not None}
    settings += [emulated] if emulated else []
    if run.attends is not None:  # unset, it leaves the key of older runs as it was
        settings.append(run.attends)
    if run.bitwise:
        settings.append("bitwise")
    return hashlib.sha256(json.dumps([versions, settings]).encode()).hexdigest()


class Evidence(EvidenceFile):
    """An open evidence file: runs and their claims.  An unknown run raises KeyError."""

    def begin(self, run: RunRecord) -> None:
        """Write that ``run`` is under way.

        A run that is already in the file is resumed: it keeps its start and its recorded claims,
        except those of a subject that now has other weights under the same name.  Subjects add up.
        """
        with self._transaction() as db:
            row = db.execute("SELECT run FROM runs WHERE id = ?", (run.id,)).fetchone()
            before = self._run_record(row[0]).subjects if row else {}
            whole = replace(run, subjects={**before, **run.subjects})
            db.execute(
                "INSERT INTO runs (id, started, key, run) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO "
                "UPDATE SET key = excluded.key, run = excluded.run, finished = NULL, exit = NULL",
                (run.id, run.started, resume_key(run), _json(whole.as_json())),
            )
            for name, subject in run.subjects.items():
                db.execute(
                    "DELETE FROM claims WHERE run = ? AND subject = ? AND digest <> ?",
                    (run.id, name, subject.digest),
                )

    def record(self, run_id: str, result: Result, digest: str) -> None:
        """Write one finished claim on the subject with ``digest``; it is on the disk on return.

        The same claim, subject and name recorded again in one run replaces the earlier row.
        """
        row = result.as_json()
        with self._transaction() as db:
            run = self._run(run_id)
            columns = {name: row[name] for name in _REPEATED} | {
                "run": run_id,
                "claim": row["id"],
                "digest": digest,
                "dtype": run.dtype_of(result.subject),
                "device": run.device,
                "recorded": _now(),
                "result": _json(row),
            }
            merging.insert(db, "claims", [columns], merging.CLAIM)

    def finish(self, run_id: str, exit: int) -> None:
        """Write that the run ended now, with this exit code: it is never resumed."""
        with self._transaction() as db:
            self._run(run_id)
            db.execute(
                "UPDATE runs SET finished = ?, exit = ? WHERE id = ?", (_now(), exit, run_id)
            )

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
        """Every run as `begin` wrote it, with its finish and exit code; oldest first."""
        with clear(self.path):
            rows = self._db.execute(
                "SELECT id, run, started, finished, exit FROM runs ORDER BY started, rowid"
            ).fetchall()
        runs = []
        for id, text, started, finished, exit in rows:
            content = self._object(text, Run, OF_A_RUN)
            content |= {"started": started, "finished": finished, "exit": exit}
            self._check(content, Run, OF_A_RUN)
            self._need(content["versions"], ("python", "torch", "transformers"))
            for subject in content["subjects"].values():
                self._need(subject, ("digest",))
            run = RunRecord.from_json(content)
            if run.id != id:
                raise damaged(self.path, f"a run has two ids, {id!r} and {run.id!r}")
            if not self._is_indexed(id):
                raise damaged(self.path, f"the index of its runs lacks {id!r}")
            runs.append(run)
        return runs

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

    def rows(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Rows of (subject's digest, `Result.as_json`): samples and pictures still packed."""
        with clear(self.path):
            self._run(run_id)
            rows = self._db.execute(
                "SELECT digest, result FROM claims WHERE run = ? ORDER BY rowid", (run_id,)
            ).fetchall()
        contents = [(digest, self._object(text, Claim, OF_A_CLAIM)) for digest, text in rows]
        for _, row in contents:
            self._check_words(row)
        return contents

    def check(self) -> None:
        """Raise BadInput where runs or results are not as Assay writes them."""
        ids = {run.id for run in self.runs()}
        with clear(self.path):
            rows = self._db.execute(f"SELECT {', '.join(COLUMNS)} FROM claims").fetchall()
        for values in rows:
            claim = dict(zip(COLUMNS, values, strict=True))
            self._check(claim, Row, ())
            self._check_words(claim)
            if claim["run"] not in ids:
                raise damaged(self.path, f"results of {claim['run']!r}, which is no run")
        for run_id in ids:
            self.rows(run_id)

    def _check_words(self, row: dict[str, Any]) -> None:
        for name, words in (("verdict", Verdict), ("kind", Kind)):
            if row[name] not in [each.value for each in words]:
                raise damaged(self.path, f"{row[name]!r} is no {name}")

    def _check(self, record: Any, kind: type[Struct], needed: Iterable[str]) -> None:
        """Raise BadInput where a record has other types than its kind, or lacks a needed name."""
        if (wrong := mistake(record, kind)) is not None:
            raise damaged(self.path, wrong)
        self._need(record, needed)

    def _need(self, record: dict[str, Any], names: Iterable[str]) -> None:
        for name in names:
            if name not in record:
                raise damaged(self.path, f"JSON of a row that has no {name}")

    def _results(self, run_id: str) -> list[tuple[str, Result]]:
        rows = self.rows(run_id)
        try:
            return [(digest, Result.from_json(row)) for digest, row in rows]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise damaged(self.path, f"a result: {error}") from error

    def _object(self, text: Any, kind: type[Struct], needed: Iterable[str]) -> dict[str, Any]:
        """The JSON object of a row; raises BadInput."""
        content: dict[str, Any] = self._json(text)
        self._check(content, kind, needed)
        return content

    def _json(self, text: Any) -> Any:
        try:
            return json.loads(text, parse_constant=_refuse)
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self.path, f"JSON of a row: {error}") from error

    def unfinished(self, key: str) -> str | None:
        """The latest run with this `resume_key` that can be resumed, if there is one: it has no
        finish, or its budget left claims out.

        A run that is still going in another process looks the same in the file.
        """
        with clear(self.path):
            row = self._db.execute(
                "SELECT id FROM runs WHERE key = ? AND (finished IS NULL OR EXISTS (SELECT 1 FROM "
                "claims WHERE run = runs.id AND json_extract(result, ?) = ?)) "
                "ORDER BY started DESC, rowid DESC LIMIT 1",
                (key, f'$.details."{LEFT_OUT}"', BUDGET),
            ).fetchone()
        return None if row is None else row[0]

    def _is_indexed(self, run_id: str) -> bool:
        with clear(self.path):
            row = self._db.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone()
        return row is not None

    def _run(self, run_id: str) -> RunRecord:
        row = self._db.execute("SELECT run FROM runs WHERE id = ?", (run_id,)).fetchone()
        if row is None:
            raise KeyError(run_id)
        return self._run_record(row[0])

    def _run_record(self, text: Any) -> RunRecord:
        return RunRecord.from_json(self._object(text, Run, OF_A_RUN))


def _refuse(number: str) -> None:
    """JSON has no NaN and nothing infinite, though Python reads and writes them."""
    raise ValueError(f"{number} is not a number")


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False)


def _now() -> str:
    return datetime.now(UTC).isoformat()
