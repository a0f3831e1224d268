"""One cell of a sweep: a run of claims in a process of its own, and its outcome.

Workers on any machine do only this; `Job` and `Outcome` travel as plain types.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from assay.harness.report.texts import clipped, visible
from assay.harness.results.errors import BadInput
from assay.harness.runners import runner
from assay.harness.runners.runner import BROKE, FAILED, Outcome, Request
from assay.harness.runners.sweeps.plan import SweepCell

News = tuple["Job", Outcome | None]
"""A job that has started (None), or ended with an outcome."""

LONGEST = 160
"""The most characters of the line that says why."""


@dataclass(frozen=True)
class Job:
    """A cell as a worker needs it, with its Python, folder and files.

    It runs in ``folder``, the sweep's, so that folders in it are models.  ``files`` is the path
    of its files without a suffix.
    """

    cell: SweepCell
    python: Path
    folder: Path
    files: Path
    cpu: float = 1.0
    retries: int = 0

    @property
    def evidence(self) -> Path:
        """Its own evidence file."""
        return self.files.with_suffix(".sqlite")

    @property
    def log(self) -> Path:
        """The output of its pytest."""
        return self.files.with_suffix(".log")

    @property
    def failures(self) -> Path:
        """JUnit's XML of its latest attempt."""
        return self.files.with_suffix(".xml")

    @property
    def request(self) -> Request:
        """The run of claims of the cell."""
        return Request(
            python=self.python,
            models=[self.cell.model],
            settings=self.cell.settings,
            evidence=self.evidence,
            folder=self.folder,
            pytest_arguments=[f"--junitxml={self.failures}", "--resume"],
            variables={"OMP_NUM_THREADS": str(max(1, int(self.cpu)))},
            log=self.log,
        )


def run(job: Job) -> Outcome:
    """Run a cell; errors of the cell are in the outcome.

    Where the job's folder does not exist, on a machine that shares no files with the sweep's,
    its files are written to a temporary folder and travel with the outcome.
    """
    shared = job.files.parent.is_dir()
    with nullcontext("") if shared else tempfile.TemporaryDirectory() as scratch:
        here = job if shared else replace(job, files=Path(scratch, job.cell.key))
        start = time.monotonic()
        try:
            outcome = _run(here)
        except (BadInput, OSError) as error:
            outcome = Outcome(FAILED, str(error))
        return replace(
            outcome,
            why=one_line(outcome.why),
            seconds=time.monotonic() - start,
            results=(),  # they are in the evidence, and may be large
            files={} if shared else _contents(here),
        )


def in_order(jobs: Sequence[Job]) -> Iterator[News]:
    """Run all jobs on this machine, one after another."""
    for job in jobs:
        yield job, None
        yield job, run(job)


def _run(job: Job) -> Outcome:
    # A worker may be lost between the end of the run and its report.
    if (ended := runner.last_outcome(job.evidence)) is not None:
        return ended
    job.log.unlink(missing_ok=True)
    for _ in range(job.retries + 1):
        job.failures.unlink(missing_ok=True)
        outcome = runner.run(job.request)
        if outcome.code is None or outcome.code >= 0:
            break
    if outcome.state == BROKE:
        return replace(outcome, why=_broken(job.failures) or outcome.why)
    if outcome.code is not None and outcome.code < 0:
        times = f" {job.retries + 1} times" if job.retries else ""
        return replace(outcome, why=f"{runner.died(outcome.code)}{times}")
    return outcome


def _broken(path: Path) -> str:
    """Which claims of JUnit's XML were not as expected."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return ""
    claims = []
    for case in cases:
        facts = {each.get("name"): each.get("value") for each in case.iter("property")}
        if case.find("failure") is not None or case.find("error") is not None:
            name = facts.get("claim") or str(case.get("name"))
            claims.append(f"{name} {facts.get('verdict', 'not settled')}")
    return ", ".join(dict.fromkeys(claims))


def one_line(text: str) -> str:
    """A text as one line that is not too long."""
    return clipped(visible(" ".join(text.split())), LONGEST)


def _contents(job: Job) -> dict[str, bytes]:
    paths = (job.evidence, job.log, job.failures)
    return {path.suffix: path.read_bytes() for path in paths if path.is_file()}
