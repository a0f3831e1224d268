"""Chains of runs on one evidence file: each is killed, and the next resumes it.

A run is of all laws of a tiny type.  It is killed by its progress, as the terminal shows it, and a
short delay: sixty kills cost a few whole runs.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from assay.harness.tests.support import sessions
from assay.harness.tests.support.interruptions import (
    Kill,
    Plan,
    Stored,
    incomplete,
    losses,
    reported,
)

LAWS = ("--model=tiny:llama", "-mlaw and not toy", "--profile=glance", "-pno:cacheprovider")
"""About 80 claims, 8 s."""

GRACE = 60
"""Seconds in which workers have to end after their run; xdist gives them 15."""

WORKER = "import sys;exec(eval(sys.stdin.readline()))"
"""In the command of an xdist worker."""

INTERRUPTED = 2
"""The exit code of a run that was, by Ctrl-C or SIGTERM."""


def _begin(arguments: list[str], output: str, environment: dict[str, str]) -> None:
    """All that ``python -m pytest`` would do, as the first process of a session of its own."""
    os.setsid()
    tempfile.tempdir = None  # not the parent's: as the environment says
    sessions._main([arguments], str(sessions.ROOT), output, environment)


def processes(leader: int) -> list[psutil.Process]:
    """The processes of a session, its leader among them, that have not ended."""
    members = []
    for pid in psutil.pids():
        with suppress(OSError, psutil.Error):
            process = psutil.Process(pid)
            if os.getsid(pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


def workers(leader: int) -> list[int]:
    """The xdist workers of a session, in the order of their process ids."""
    pids = []
    for process in processes(leader):
        with suppress(psutil.Error):
            pids += [process.pid] if WORKER in process.cmdline() else []
    return sorted(pids)


@dataclass
class Tally:
    """What came of a chain: kills that met a run by what they were, and those that came late.

    Not judged: ``leftovers`` of processes that were killed, and tracebacks ``of_workers``.
    """

    landed: Counter[str] = field(default_factory=Counter)
    late: int = 0
    reported: int = 0
    stored: int = 0
    leftovers: list[str] = field(default_factory=list)
    of_workers: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Chain:
    """Runs on one evidence file in ``folder``, which settle ``total`` claims together."""

    def __init__(self, folder: Path, total: int) -> None:
        self.folder, self.total, self.tally = folder, total, Tally()
        self.evidence, self.scratch = folder / "evidence.sqlite", folder / "scratch"
        self.report, self.output = folder / "out.json", folder / "output"
        self.scratch.mkdir(parents=True)
        self.stored = Stored()

    def follow(self, plans: list[Plan]) -> Tally:
        """Kill runs as planned, then resume to the end; a run that ends by itself is the last."""
        for plan in [*plans, Plan()]:
            self._attempt(plan)
            if self.stored.ended or self.tally.faults:
                break
        self.tally.faults += incomplete(self.stored, self.total)
        self.tally.stored = len(self.stored.rows)
        return self.tally

    def _attempt(self, plan: Plan) -> None:
        """Begin a run, kill it as planned, and compare what it showed with what it left."""
        with self._started(plan) as process:
            met = [self._strike(kill, plan, process) for kill in plan.kills]
            process.join(sessions.PATIENCE)
            hangs = process.exitcode is None
            left = not hangs and not _until(lambda: not processes(process.pid), GRACE)
            leftover = [each.cmdline() for each in processes(process.pid)] if left else []
        output = self._text
        for kill, landed in zip(plan.kills, met, strict=True):
            key = f"{kill.signal.name} to the {kill.victim} of -n {plan.workers}"
            self.tally.landed[key] += landed
            self.tally.late += not landed
        before, self.stored = self.stored, Stored.of(self.evidence)
        counts = reported(output)
        self.tally.reported += counts.total()
        wrong = [*losses(before, self.stored, counts)]
        wrong += ["hangs"] if hangs else self._wrong_end(plan, process.exitcode, output, met)
        wrong += [f"process left: {command}" for command in leftover]
        wrong += self._left_behind(plan)
        self.tally.faults += [f"{plan}: {each}\n{output[-3000:]}" for each in wrong]

    @property
    def _text(self) -> str:
        """All that the run has printed, without colours."""
        raw = self.output.read_bytes() if self.output.exists() else b""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", raw.decode(errors="replace"))

    @contextmanager
    def _started(self, plan: Plan) -> Iterator[BaseProcess]:
        self.report.unlink(missing_ok=True)
        self.output.unlink(missing_ok=True)
        files = [f"--evidence={self.evidence}", f"--json={self.report}", "--resume"]
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(sessions.PRELOAD)
        environment = {"TMPDIR": str(self.scratch), "TERM": "xterm"}
        arguments = [*LAWS, *files, *plan.arguments]
        process = context.Process(target=_begin, args=(arguments, str(self.output), environment))
        process.start()
        try:
            yield process
        finally:
            for each in processes(process.pid):
                with suppress(psutil.Error):
                    each.kill()
            process.kill()
            process.join()

    def _strike(self, kill: Kill, plan: Plan, process: BaseProcess) -> bool:
        """Send a signal when its moment has come; whether claims were still to be settled then."""
        begun = " workers [" if plan.workers else "collected "

        def done() -> int:
            return reported(self._text).total()

        def due() -> bool:
            ready = begun in self._text and done() >= int(kill.at * self.total)
            return ready or not process.is_alive()

        _until(due, sessions.PATIENCE)
        time.sleep(kill.delay)
        if not process.is_alive() or done() > self.total - 3:
            return False
        alive = workers(process.pid) if kill.victim == "worker" else [process.pid]
        if not alive:
            return False
        send = os.killpg if kill.victim == "group" else os.kill
        try:
            send(alive[int(1000 * kill.at) % len(alive)], kill.signal)
        except ProcessLookupError:
            return False
        return True

    def _wrong_end(self, plan: Plan, code: int | None, output: str, met: list[bool]) -> list[str]:
        """What is not as documented in how a run ended, and in its report."""
        wrong = []
        allowed = _codes(plan, met)
        if code not in allowed:
            wrong.append(f"exit code {code}, not one of {allowed}")
        if code == 0 and not self.stored.ended:
            wrong.append("exit code 0 of a run that is not finished")
        if (at := re.search("Traceback|INTERNALERROR", output)) is not None:
            # A worker whose run has ended may print one; the run itself ends with exit code 3.
            printed = f"a traceback: {output[max(0, at.start() - 500) :][:3000]}"
            (self.tally.of_workers if plan.workers else wrong).append(printed)
        if code == INTERRUPTED and reported(output):
            if "claims have no verdict; --resume continues" not in output:
                wrong.append("does not say what was interrupted")
            if not self.report.exists():
                wrong.append("no JSON report")
        if self.report.exists():
            claims = json.loads(self.report.read_text())["claims"]
            if unkept := {claim["name"] for claim in claims} - set(self.stored.names):
                wrong.append(f"in the JSON report and not stored: {unkept}")
        return wrong

    def _left_behind(self, plan: Plan) -> list[str]:
        """Files that are left, where no process was killed that would have removed them.

        pytest keeps its own folders of its last three runs.
        """
        known = {self.evidence, self.scratch, self.report, self.output}
        left = [path for path in self.folder.iterdir() if path not in known]
        left += [p for p in self.scratch.iterdir() if not p.name.startswith("pytest-of-")]
        for path in left:
            if path.parent == self.scratch:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        names = [path.name for path in left]
        if any(kill.signal is signal.SIGKILL or kill.victim != "run" for kill in plan.kills):
            self.tally.leftovers += names
            return []
        return [f"left behind: {name}" for name in names]


def _codes(plan: Plan, met: list[bool]) -> set[int]:
    """The exit codes that are documented for a run that was killed so."""
    if not plan.kills:
        return {0}
    last = plan.kills[-1]
    if not met[-1] or last.victim == "worker":
        # To its end, without the claims of a worker that died; one that gets Ctrl-C interrupts it.
        return {0, 1, INTERRUPTED} if last.signal is signal.SIGINT else {0, 1}
    if last.signal is signal.SIGKILL:
        return {-signal.SIGKILL}
    return {INTERRUPTED}


def _until(happened: Callable[[], object], seconds: float) -> bool:
    """Whether something happens in so many seconds."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
