"""A sweep on this machine, without a scheduler: one cell after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assay.harness.runners.sweeps import cell
from assay.harness.runners.sweeps.cell import Job, Outcome

News = tuple[Job, Outcome | None]
"""That a job runs (None), or what it came to."""


def outcomes(jobs: Sequence[Job]) -> Iterator[News]:
    """Run all jobs in order."""
    for job in jobs:
        yield job, None
        yield job, cell.run(job)
