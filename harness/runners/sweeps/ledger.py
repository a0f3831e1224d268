"""What a sweep has come to so far: its evidence, and which cells need not be run again."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self

from assay import harness
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.runners.sweeps import cell as cells
from assay.harness.runners.sweeps.cell import Job, Outcome
from assay.harness.runners.sweeps.environments import Environment
from assay.harness.runners.sweeps.plan import Cell, Sweep

SAME = ("python", "torch", "transformers")
"""Versions that must be the same for a cell not to be run again."""


class Ledger:
    """The merged evidence of a sweep and, beside it, the folder of its cells' own files.

    A context manager.  What cells of an earlier sweep, perhaps one that was killed, have left
    there is merged on entry; unfinished runs stay to be gone on with if ``resume``.  Raises
    `BadInput` where the files cannot be used or another sweep is using them.
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
        """A cell has ended: merge what it found; its log stays where something went wrong."""
        for suffix, content in outcome.files.items():
            Path(job.files + suffix).write_bytes(content)
        if job.evidence.is_file():
            self._gather(job.evidence, keep=True)
        job.failures.unlink(missing_ok=True)
        if outcome.state == cells.HELD:
            job.log.unlink(missing_ok=True)

    def _gather(self, path: Path, *, keep: bool) -> None:
        """Merge a cell's file; it goes once it is finished, or unless it is to be kept."""
        with Evidence.read(path) as found:
            self.evidence.merge(found)
        if cells.finished(path) is not None or not keep:
            path.unlink()

    def known(
        self, cell: Cell, environment: Environment, digest: Callable[[str], str | None]
    ) -> Outcome | None:
        """What the cell came to when it was last run to its end, or None.

        ``digest`` gives what a model's weights and configuration are now; it is asked only where
        there is such a run.
        """
        for run in reversed(self.evidence.runs()):
            if run["finished"] is None or run["exit"] not in (0, 1):
                continue
            if not same(run, cell, environment):
                continue
            # None of a pattern, too: it is of models that come with Assay.
            now = digest(cell.model)
            if now is None or now == run["subjects"].get(cell.model, {}).get("digest"):
                return cells.told(self.evidence, run["id"], run["exit"])
        return None


def same(run: dict[str, Any], cell: Cell, environment: Environment) -> bool:
    """Whether a run in the evidence is one of this cell, whatever the model's weights."""
    selection = run.get("selection") or {}
    device, _, placed = run["device"].partition(", device map ")
    asked = cell.claims or ("claims",)
    recorded = selection.get("claims", [])
    models = selection.get("models", list(run["subjects"]))  # what older runs do not say
    return (
        run["suite"] == harness.__version__
        and models == [cell.model]
        and all(run[key] == getattr(cell, key) for key in ("profile", "seed", "dtype"))
        and run["attention"] == cell.attention
        and run.get("attends") == cell.attends
        and device.partition(" (")[0] == cell.device
        and placed.partition(" (")[0] == (cell.device_map or "")
        and all(run["versions"].get(name) == environment.versions.get(name) for name in SAME)
        and (selection.get("keyword"), selection.get("marker")) == (cell.keyword, cell.marker)
        and len(asked) == len(recorded)
        # Recorded from the root on, which is not the clone's for claims from elsewhere.
        and all(f"/{a}".endswith(f"/{b}") for a, b in zip(asked, recorded, strict=True))
    )


def _lock(file: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise BadInput(f"{folder}: another sweep is under way there") from error
