"""One cell of a sweep: a run of pytest in a process of its own, and what came of it.

This is all that a worker does, wherever it is; `Job` and `Outcome` travel as plain types.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

from assay.harness.report.texts import clipped, visible
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.runners.sweeps.plan import Cell

HELD, BROKE, FAILED = "held", "broke", "failed"
"""What a cell comes to: every claim as expected; not every one; it was not run to its end."""

LONGEST = 160
"""Characters of the one line that says why."""

NOTHING_SELECTED = 5
"""Pytest's exit code where no test was left."""


@dataclass(frozen=True)
class Job:
    """A cell with all that a worker needs: which Python, where, into which files."""

    cell: Cell
    python: str
    root: str
    """The clone of Assay."""
    folder: str
    """Where it is run: the sweep's, so that folders in it are models."""
    files: str
    """Path of its files without a suffix."""
    cpu: float = 1.0
    retries: int = 0

    @property
    def evidence(self) -> Path:
        """Its own evidence file."""
        return Path(f"{self.files}.sqlite")

    @property
    def log(self) -> Path:
        """All that its pytest printed."""
        return Path(f"{self.files}.log")

    @property
    def failures(self) -> Path:
        """JUnit's XML of its latest attempt."""
        return Path(f"{self.files}.xml")


@dataclass(frozen=True)
class Outcome:
    """What a cell came to: `HELD`, `BROKE` or `FAILED`, and in one line why."""

    state: str
    why: str = ""
    seconds: float = 0.0
    verdicts: dict[str, int] = field(default_factory=dict)
    """How many claims ended so."""
    files: dict[str, bytes] = field(default_factory=dict)
    """By suffix, the job's files that were written where the sweep cannot see them."""


def run(job: Job) -> Outcome:
    """Run a cell to its end and say what came of it; never raises for what the cell does.

    Where the job's folder is not there, on a machine that shares no files with the sweep's, its
    files are written elsewhere and travel with the outcome.
    """
    shared = Path(job.files).parent.is_dir()
    with nullcontext("") if shared else tempfile.TemporaryDirectory() as place:
        here = job if shared else replace(job, files=str(Path(place, job.cell.key)))
        start = time.monotonic()
        try:
            outcome = _run(here)
        except (BadInput, OSError) as error:
            outcome = Outcome(FAILED, one_line(str(error)))
        files = {} if shared else _contents(here)
        return replace(outcome, seconds=time.monotonic() - start, files=files)


def _run(job: Job) -> Outcome:
    # A worker may be lost between the end of the run and the news of it.
    if (ended := finished(job.evidence)) is not None:
        return ended
    for attempt in range(job.retries + 1):
        code = _pytest(job, afresh=attempt == 0)
        if code >= 0:
            break
    if code in (0, 1):
        ended = finished(job.evidence)
        if ended is None:
            return Outcome(FAILED, _last_word(job.log) or "ended before its claims did")
        if code:
            return replace(ended, why=_broken(job.failures) or ended.why)
        return ended
    if code < 0:
        times = f" {job.retries + 1} times" if job.retries else ""
        return Outcome(FAILED, f"killed by {_signal(-code)}{times}")
    if code == NOTHING_SELECTED:
        return Outcome(FAILED, "no claim was selected")
    return Outcome(FAILED, _last_word(job.log) or f"pytest ended with exit code {code}")


def finished(path: Path) -> Outcome | None:
    """What the run that a cell's evidence file holds came to, if it was run to its end."""
    if not path.is_file():
        return None
    with closing(Evidence.read(path)) as evidence:
        for run in reversed(evidence.runs()):
            if run["finished"] is not None and run["exit"] in (0, 1):
                return told(evidence, run["id"], run["exit"])
    return None


def told(evidence: Evidence, run: str, exit: int) -> Outcome:
    """A finished run as a cell's outcome."""
    verdicts: dict[str, int] = {}
    for _, row in evidence.rows(run):
        verdicts[row["verdict"]] = verdicts.get(row["verdict"], 0) + 1
    return Outcome(BROKE if exit else HELD, "not as expected" if exit else "", verdicts=verdicts)


def command(job: Job) -> list[str]:
    """The run of pytest that is the cell."""
    cell, root = job.cell, Path(job.root)
    line = [
        job.python,
        "-m",
        "pytest",
        "-p",
        "assay.harness.runners.sweeps.leash",
        "-p",
        "no:cacheprovider",
    ]
    line += [str(root / path) for path in cell.claims or ("claims",)]
    options = {
        "model": cell.model,
        "dtype": cell.dtype,
        "device": cell.device,
        "profile": cell.profile,
        "seed": cell.seed,
        "attention": cell.attention,
        "attends": cell.attends,
        "device-map": cell.device_map,
        "expectations": cell.expectations,
        "evidence": job.evidence,
        "junitxml": job.failures,
    }
    line += [f"--{name}={value}" for name, value in options.items() if value is not None]
    line += ["--resume"]
    line += ["-k", cell.keyword] if cell.keyword else []
    line += ["-m", cell.marker] if cell.marker else []
    return line


def _pytest(job: Job, *, afresh: bool) -> int:
    """Run it; the exit code, below 0 if a signal ended it."""
    job.failures.unlink(missing_ok=True)
    variables = {
        **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST")},
        "PYTHONPATH": str(Path(job.root, "harness", "package")),
        "OMP_NUM_THREADS": str(max(1, int(job.cpu))),
        "COLUMNS": "160",
        "NO_COLOR": "1",
    }
    with job.log.open("wb" if afresh else "ab") as log:
        process = subprocess.Popen(
            command(job),
            cwd=job.folder,
            env=variables,
            stdin=subprocess.PIPE,  # see `harness.runners.sweeps.leash`
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            return process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise


def _broken(path: Path) -> str:
    """Which claims of JUnit's XML were not as expected."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return ""
    found = []
    for case in cases:
        facts = {each.get("name"): each.get("value") for each in case.iter("property")}
        if case.find("failure") is not None or case.find("error") is not None:
            name = facts.get("claim") or str(case.get("name"))
            found.append(f"{name} {facts.get('verdict', 'not settled')}")
    return one_line(", ".join(dict.fromkeys(found)))


def _last_word(log: Path) -> str:
    """The line of a log that says what went wrong: the first ERROR, else the last line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line.strip() for line in lines if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return one_line((errors or lines[-1:] or [""])[0])


def one_line(text: str) -> str:
    """A text as one line that is not too long."""
    return clipped(visible(" ".join(text.split())), LONGEST)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _contents(job: Job) -> dict[str, bytes]:
    paths = (job.evidence, job.log, job.failures)
    return {path.suffix: path.read_bytes() for path in paths if path.is_file()}
