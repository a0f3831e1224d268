"""The evidence: one row per claim, subject and run, written as each ends.

A run is written when it begins and when it comes to its end; in between each claim is one
transaction, so a run that is killed loses at most the claim in flight.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from harness import merging
from harness.evidence_file import EvidenceFile, clear, damaged
from harness.verdicts import Result, Verdict

EMULATED = ("rounding", "allocation")
"""The options that emulate another machine, as a run records them (`harness.emulation`)."""

_REPEATED = ["name", "kind", "subject", "verdict", "observed", "bound", "margin"]
_REPEATED += ["examples", "seconds"]
"""The entries of a result that have a column of their own under the same name."""

EXTRACTED = ("reason", "counterexample", "interval", "details")
"""What `Evidence.every` gives of a result's JSON."""


def resume_key(run: dict[str, Any]) -> str:
    """A digest of what two runs must share for one to go on where the other stopped.

    Subjects are not in it: they are matched claim by claim, by their own digest.
    """
    versions = [run["versions"][name] for name in ("python", "torch", "transformers")]
    settings = [run[name] for name in ("suite", "dtype", "device", "attention", "profile", "seed")]
    emulated = {name: run[name] for name in EMULATED if run.get(name) is not None}
    settings += [emulated] if emulated else []
    if run.get("attends") is not None:  # as long as nobody says, the key of older runs
        settings.append(run["attends"])
    return hashlib.sha256(json.dumps([versions, settings]).encode()).hexdigest()


class Evidence(EvidenceFile):
    """An open evidence file: runs and their claims.  A run that is not there is a KeyError."""

    def begin(self, run: dict[str, Any]) -> None:
        """Write that ``run`` is under way.

        A run that is known already goes on: it keeps its start and its recorded claims, except
        those of a subject that by now has other weights under the same name.  Subjects add up.
        """
        with self._transaction() as db:
            known = db.execute("SELECT run FROM runs WHERE id = ?", (run["id"],)).fetchone()
            subjects = {**(json.loads(known[0])["subjects"] if known else {}), **run["subjects"]}
            db.execute(
                "INSERT INTO runs (id, started, key, run) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO "
                "UPDATE SET key = excluded.key, run = excluded.run, finished = NULL, exit = NULL",
                (run["id"], run["started"], resume_key(run), _json({**run, "subjects": subjects})),
            )
            for name, subject in run["subjects"].items():
                db.execute(
                    "DELETE FROM claims WHERE run = ? AND subject = ? AND digest <> ?",
                    (run["id"], name, subject["digest"]),
                )

    def record(self, run_id: str, result: Result, digest: str) -> None:
        """Write one finished claim on the subject with ``digest``; on the disk on return.

        The same claim, subject and name recorded again in one run replaces the earlier row.
        """
        row = result.as_json()
        with self._transaction() as db:
            run = self._run(run_id)
            columns = {name: row[name] for name in _REPEATED} | {
                "run": run_id,
                "claim": row["id"],
                "digest": digest,
                "dtype": run["dtype"],
                "device": run["device"],
                "recorded": _now(),
                "result": _json(row),
            }
            merging.insert(db, "claims", [columns], merging.CLAIM)

    def finish(self, run_id: str, exit: int) -> None:
        """Write that the run came to its end, now, with this exit code: it is never resumed."""
        with self._transaction() as db:
            self._run(run_id)
            db.execute(
                "UPDATE runs SET finished = ?, exit = ? WHERE id = ?", (_now(), exit, run_id)
            )

    def merge(self, *others: Evidence) -> tuple[int, int]:
        """Copy every run and claim of ``others`` that is not here, all or nothing.

        Of a claim in two copies of one run the one recorded later is kept, and none about weights
        that a later copy has replaced (see `begin`).  Merging the same again changes nothing.
        Returns how many runs and claims there are more than before.
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
        """Every run and its claims; what is wrong with them is said of this file alone."""
        with clear(self.path):
            yield from merging.copies(self._db)

    def runs(self) -> list[dict[str, Any]]:
        """Every run as it was given to `begin`, with its finish and exit code; oldest first."""
        with clear(self.path):
            rows = self._db.execute(
                "SELECT run, started, finished, exit FROM runs ORDER BY started, rowid"
            ).fetchall()
        return [
            {
                **self._object(run, "subjects"),
                "started": started,
                "finished": finished,
                "exit": exit,
            }
            for run, started, finished, exit in rows
        ]

    def counts(self) -> dict[str, int]:
        """How many claims are recorded of each run that has any, by the run's id."""
        with clear(self.path):
            return dict(self._db.execute("SELECT run, count(*) FROM claims GROUP BY run"))

    def results(self, run_id: str) -> list[Result]:
        """The claims recorded in this run, in the order in which they were first recorded."""
        return [result for _, result in self._results(run_id)]

    def every(self) -> Iterator[dict[str, Any]]:
        """What is recorded of each claim, of whatever run, without its draws and pictures.

        Keys: ``run``, ``claim``, ``name``, ``kind``, ``subject``, ``digest``, ``dtype``,
        ``device``, ``verdict``, ``observed``, ``bound``, ``margin``, ``examples``, ``recorded``
        as the columns have them, and ``told``: JSON of [reason, counterexample, interval,
        details].  In the order in which they were first recorded.
        """
        columns = "run claim name kind subject digest dtype device verdict observed bound margin"
        names = [*columns.split(), "examples", "recorded"]
        parts = ", ".join(f"'$.{key}'" for key in EXTRACTED)
        with clear(self.path):
            rows = self._db.execute(
                f"SELECT {', '.join(names)}, json_extract(result, {parts}) FROM claims "
                "ORDER BY rowid"
            )
            for row in rows:
                claim = dict(zip([*names, "told"], row, strict=True))
                self._check_verdict(claim["verdict"])
                yield claim

    def recorded(self, run_id: str) -> dict[tuple[str, str, str], Result]:
        """The same by (claim's name, subject's name, subject's digest): what a resume may skip."""
        found = self._results(run_id)
        return {(result.name, result.subject, digest): result for digest, result in found}

    def rows(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        """The same as (subject's digest, `Result.as_json`): samples and pictures still packed."""
        with clear(self.path):
            self._run(run_id)
            rows = self._db.execute(
                "SELECT digest, result FROM claims WHERE run = ? ORDER BY rowid", (run_id,)
            ).fetchall()
        found = [(digest, self._object(result, "verdict")) for digest, result in rows]
        for _, row in found:
            self._check_verdict(row["verdict"])
        return found

    def check(self) -> None:
        """Raise BadInput where runs or results are not as Assay writes them."""
        self.runs()
        with clear(self.path):
            rows = self._db.execute(
                "SELECT DISTINCT verdict, json_extract(result, '$.verdict') FROM claims"
            ).fetchall()
        for verdict in {each for row in rows for each in row}:
            self._check_verdict(verdict)

    def _check_verdict(self, verdict: object) -> None:
        if verdict not in {each.value for each in Verdict}:
            raise damaged(self.path, f"{verdict!r} is no verdict")

    def _results(self, run_id: str) -> list[tuple[str, Result]]:
        rows = self.rows(run_id)
        try:
            return [(digest, Result.from_json(row)) for digest, row in rows]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise damaged(self.path, f"a result: {error}") from error

    def _object(self, text: str, needed: str) -> dict[str, Any]:
        """The JSON object of a row, which has the key ``needed``; raises BadInput."""
        with clear(self.path):
            told = json.loads(text)
        if not isinstance(told, dict) or needed not in told:
            raise damaged(self.path, f"JSON of a row that has no {needed}")
        return told

    def unfinished(self, key: str) -> str | None:
        """The latest run with this `resume_key` that has no finish, if there is one.

        A run that is still going in another process looks the same: the file cannot tell.
        """
        with clear(self.path):
            row = self._db.execute(
                "SELECT id FROM runs WHERE key = ? AND finished IS NULL "
                "ORDER BY started DESC, rowid DESC LIMIT 1",
                (key,),
            ).fetchone()
        return None if row is None else row[0]

    def _run(self, run_id: str) -> dict[str, Any]:
        row = self._db.execute("SELECT run FROM runs WHERE id = ?", (run_id,)).fetchone()
        if row is None:
            raise KeyError(run_id)
        run: dict[str, Any] = json.loads(row[0])
        return run


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False)


def _now() -> str:
    return datetime.now(UTC).isoformat()
