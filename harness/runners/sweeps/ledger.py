"""The evidence of a sweep, and its finished cells."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Self

from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.records import RunRecord, SubjectRecord
from assay.harness.runners import runner
from assay.harness.runners.environments import Environment
from assay.harness.runners.runner import HELD, Outcome
from assay.harness.runners.sweeps.cell import Job
from assay.harness.runners.sweeps.plan import Sweep, SweepCell

SAME = ("python", "torch", "transformers")
"""Packages whose versions must be the same for a cell to be skipped."""


class Ledger:
    """The merged evidence of a sweep and, next to it, the folder of its cells' own files.

    A context manager.  Files of cells of an earlier sweep, perhaps a killed one, are merged on
    entry; unfinished runs are kept for resuming if ``resume``.  Raises `BadInput` where the
    files cannot be used or another sweep is using them.
    """

    def __init__(self, sweep: Sweep, resume: bool) -> None:
        self.sweep, self.resume = sweep, resume
        self.folder = sweep.evidence.with_name(sweep.evidence.name + ".cells")
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self.evidence = opened.enter_context(Evidence.open(self.sweep.evidence))
            try:
                self.folder.mkdir(exist_ok=True)
                lock = opened.enter_context((self.folder / "lock").open("w"))
            except OSError as error:
                raise BadInput(f"{self.folder}: cannot be used ({error.strerror})") from error
            _lock(lock, self.folder)
            for path in sorted(self.folder.glob("*.sqlite")):
                self._gather(path, keep=self.resume)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def take(self, job: Job, outcome: Outcome) -> None:
        """A cell has ended: merge its evidence; its log is kept unless every claim held."""
        for suffix, content in outcome.files.items():
            job.files.with_suffix(suffix).write_bytes(content)
        if job.evidence.is_file():
            self._gather(job.evidence, keep=True)
        job.failures.unlink(missing_ok=True)
        if outcome.state == HELD:
            job.log.unlink(missing_ok=True)

    def _gather(self, path: Path, *, keep: bool) -> None:
        """Merge a cell's file; remove it if its run finished, or unless ``keep``."""
        with Evidence.read(path) as part:
            part.check()
            self.evidence.merge(part)
        if runner.last_outcome(path) is not None or not keep:
            path.unlink()

    def stored_outcome(
        self, cell: SweepCell, environment: Environment, digest: Callable[[str], str | None]
    ) -> Outcome | None:
        """The outcome of the cell's last finished run, or None.

        ``digest`` returns the present digest of a model; it is called only where there is such
        a run.
        """
        for run in reversed(self.evidence.runs()):
            if not (runner.is_settled(run) and same(run, cell, environment)):
                continue
            # None also for a pattern, which names models that come with Assay.
            now = digest(cell.model)
            if now is None or now == run.subjects.get(cell.model, SubjectRecord()).digest:
                return runner.outcome_of(self.evidence, run)
        return None


def same(run: RunRecord, cell: SweepCell, environment: Environment) -> bool:
    """Whether a run in the evidence belongs to this cell, with any weights of the model."""
    versions = {name: environment.versions[name] for name in SAME}
    return run.selection.models == [cell.model] and cell.settings.match(run, versions)


def _lock(file: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise BadInput(f"{folder}: another sweep uses this folder now") from error
