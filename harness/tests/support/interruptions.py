"""Runs that are killed: each resumes the evidence of the last, and what must be true then.

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
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

import psutil

from assay.harness.report import progress
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support import sessions

LAWS = ("--model=tiny:llama", "-mlaw and not toy", "--profile=glance", "-pno:cacheprovider")
"""About 170 claims."""

GRACE = 60
"""Seconds in which workers have to end after their run; xdist gives them 15."""

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)

INTERRUPTED = 2
"""The exit code of a run that was, by Ctrl-C or SIGTERM."""

# -- plans ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """One run: in how many workers, and the signal that it gets.

    The signal is sent once the share ``at`` of all claims has been reported, and ``delay`` seconds
    later: to the run, or as a terminal does it to its ``group``, or to one ``worker``.
    """

    signal: signal.Signals | None = None
    at: float = 0.0
    delay: float = 0.0
    victim: str = "run"
    workers: int = 0


def plans(draw: Random, count: int) -> list[Plan]:
    """So many kills with every signal in turn, later and later, a third of runs in two workers.

    The last is of a worker: its run settles all other claims, which leaves none to interrupt.
    """
    # The summary, which follows the last claim, is not interrupted.
    end = draw.uniform(0.4, 0.95)
    instants = sorted(draw.uniform(0, end) for _ in range(count))
    drawn = []
    for number, at in enumerate(instants):
        workers, victim = draw.choice([0, 0, 2]), draw.choice(["run", "group"])
        signal = SIGNALS[number % len(SIGNALS)]
        if number == count - 1:
            workers, victim, signal = 2, "worker", draw.choice(SIGNALS)
        delay = draw.choice([0.0, draw.uniform(0, 0.05), draw.uniform(0, 0.5)])
        drawn.append(Plan(signal, at, delay, victim, workers))
    return drawn


# -- what is shown, and what is stored ------------------------------------------------------------

_WORDS = "|".join(sorted(Verdict, key=len, reverse=True))
_LINE = re.compile(rf"^\[ *\d+/\d+\] (\S+) on \S+, ({_WORDS})\b", re.MULTILINE)


def reported(output: str) -> Counter[str]:
    """How many claims a run printed, by ``ID verdict``."""
    return Counter(f"{id} {verdict}" for id, verdict in _LINE.findall(output))


_WHERE_LOST = re.compile(
    r"PytestUnraisableExceptionWarning: Exception ignored in.*\n *\n"
    r"  Traceback \(most recent call last\):\n(?:    .*\n| *\n)*"
    r"  (?:KeyboardInterrupt|assay\.harness\.plugin\.interrupts\.Terminated)\n"
)
"""pytest's warning of an interrupt that came in a callback from C, such as one of a collection.

It shows where; `assay.harness.plugin.interrupts` raises the interrupt again.
"""


def traceback(output: str) -> str:
    """The end of what a run printed from its first traceback on, which no warning of pytest's
    about a lost interrupt quotes; empty without one.
    """
    output = _WHERE_LOST.sub("", output)
    first = re.search("Traceback|INTERNALERROR", output)
    return output[first.start() :] if first else ""


@dataclass(frozen=True)
class Stored:
    """What an evidence file holds.

    ``ends`` are those of its runs, or None; ``rows`` are (claim, name, verdict, result as JSON);
    ``integrity`` is SQLite's word, "ok" for a sound file.
    """

    ends: list[str | None] = field(default_factory=list)
    rows: list[tuple[str, str, str, str]] = field(default_factory=list)
    integrity: str = "ok"

    @classmethod
    def of(cls, path: Path) -> Stored:
        """Read a copy, as the next to open the file would: an unfinished write is rolled back."""
        if not path.exists():
            return cls()
        with tempfile.TemporaryDirectory() as folder:
            for each in path.parent.glob(f"{path.name}*"):
                shutil.copy(each, folder)
            with closing(sqlite3.connect(Path(folder, path.name))) as db:
                try:
                    return cls._read(db)
                except sqlite3.DatabaseError as error:
                    return cls(integrity=str(error))

    @classmethod
    def _read(cls, db: sqlite3.Connection) -> Stored:
        integrity = "; ".join(row[0] for row in db.execute("PRAGMA integrity_check"))
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if integrity != "ok" or not tables:  # without tables: killed while it was made
            return cls(integrity=integrity)
        ends = [end for (end,) in db.execute("SELECT run ->> 'finished' FROM runs")]
        columns = "claim, name, result ->> 'verdict', result"
        return cls(ends, db.execute(f"SELECT {columns} FROM claims").fetchall(), integrity)

    @property
    def names(self) -> Counter[str]:
        """How many rows there are of each claim."""
        return Counter(name for _, name, *_ in self.rows)

    @property
    def counts(self) -> Counter[str]:
        """The rows as `reported` counts what is printed."""
        return Counter(f"{id} {verdict}" for id, _, verdict, _ in self.rows)


def losses(before: Stored, after: Stored, counts: Counter[str]) -> Iterator[str]:
    """What a run did to the evidence that no run may do, whenever it is killed."""
    if after.integrity != "ok":
        yield f"corrupt: {after.integrity}"
        return
    if lost := counts - after.counts:
        yield f"reported and not stored: {dict(lost)}"
    if gone := Counter(before.rows) - Counter(after.rows):
        yield f"stored before, and lost or changed: {[name for _, name, *_ in gone]}"
    if twice := [name for name, count in after.names.items() if count > 1]:
        yield f"stored twice: {twice}"
    if len(after.ends) > 1:
        yield f"{len(after.ends)} runs instead of one that was resumed"


def incomplete(stored: Stored, total: int) -> Iterator[str]:
    """What is wrong at the end, when one run has all ``total`` claims and is finished."""
    if len(stored.names) != total or set(stored.names.values()) != {1}:
        yield f"{len(stored.rows)} rows of {len(stored.names)} claims at the end, not {total}"
    if len(stored.ends) != 1 or stored.ends[0] is None:
        yield f"not one run that is finished: {stored.ends}"


# -- the runs -------------------------------------------------------------------------------------


def _begin(arguments: list[str], output: str, environment: dict[str, str]) -> None:
    """All that ``python -m pytest`` would do, as the first process of a session of its own."""
    os.setsid()
    tempfile.tempdir = None  # not the parent's: as the environment says
    progress.EVERY = 1  # each claim has a line, which is compared with what is stored
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
            pids += [process.pid] if "sys.stdin.readline" in " ".join(process.cmdline()) else []
    return sorted(pids)


class Chain:
    """Runs on one evidence file in ``folder``, which settle ``total`` claims together.

    ``landed`` counts the signals that met a run before its last claims.
    """

    def __init__(self, folder: Path, total: int) -> None:
        self.folder, self.total, self.landed = folder, total, 0
        self.evidence, self.scratch = folder / "evidence.sqlite", folder / "scratch"
        self.report, self.output = folder / "out.json", folder / "output"
        self.scratch.mkdir(parents=True)
        self.stored = Stored()

    def follow(self, drawn: list[Plan]) -> list[str]:
        """Kill runs as planned, then resume to the end; what went wrong, nothing if all is well.

        A run that ends by itself is the last.
        """
        for plan in [*drawn, Plan()]:
            if wrong := self._attempt(plan):
                return [f"{plan}: {each}\n{self._text[-3000:]}" for each in wrong]
            if any(self.stored.ends):
                break
        return [*incomplete(self.stored, self.total)]

    def _attempt(self, plan: Plan) -> list[str]:
        """Begin a run, kill it as planned, and compare what it showed with what it left."""
        with self._started(plan) as process:
            landed = plan.signal is not None and self._strike(plan, process)
            process.join(sessions.PATIENCE)
            hangs = process.exitcode is None
            left = not hangs and not _until(lambda: not processes(process.pid), GRACE)
            commands = [each.cmdline() for each in processes(process.pid)] if left else []
        self.landed += landed
        before, self.stored = self.stored, Stored.of(self.evidence)
        wrong = [*losses(before, self.stored, reported(self._text))]
        wrong += ["hangs"] if hangs else self._wrong_end(plan, process.exitcode, landed)
        wrong += [f"process left: {command}" for command in commands]
        return wrong + self._left_behind(plan)

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
        files += ["-n", str(plan.workers)] if plan.workers else []
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(sessions.PRELOAD)
        environment = {"TMPDIR": str(self.scratch), "TERM": "xterm"}
        process = context.Process(
            target=_begin, args=([*LAWS, *files], str(self.output), environment)
        )
        process.start()
        try:
            yield process
        finally:
            for each in processes(process.pid):
                with suppress(psutil.Error):
                    each.kill()
            process.kill()
            process.join()

    def _strike(self, plan: Plan, process: BaseProcess) -> bool:
        """Send the signal when its moment has come; whether claims were to be settled then."""
        begun = " workers [" if plan.workers else "collected "

        def done() -> int:
            return reported(self._text).total()

        def due() -> bool:
            ready = begun in self._text and done() >= int(plan.at * self.total)
            return ready or not process.is_alive()

        _until(due, sessions.PATIENCE)
        time.sleep(plan.delay)
        if not process.is_alive() or done() > self.total - 3:
            return False
        alive = workers(process.pid) if plan.victim == "worker" else [process.pid]
        send = os.killpg if plan.victim == "group" else os.kill
        try:
            send(alive[0], plan.signal)
        except (IndexError, ProcessLookupError):
            return False
        return True

    def _wrong_end(self, plan: Plan, code: int | None, landed: bool) -> list[str]:
        """What is not as documented in how a run ended, and in its report."""
        wrong, output = [], self._text
        if code not in (allowed := _codes(plan, landed)):
            wrong.append(f"exit code {code}, not one of {allowed}")
        if code == 0 and not any(self.stored.ends):
            wrong.append("exit code 0 of a run that is not finished")
        # A worker whose run has ended may print one; the run itself ends with exit code 3.
        if not plan.workers and (shown := traceback(output)):
            wrong.append(f"a traceback: {shown[:2000]}")
        if code == INTERRUPTED and reported(output):
            if "claims have no verdict; --resume continues" not in output:
                wrong.append("does not say what was interrupted")
            if not self.report.exists():
                wrong.append("no JSON report")
        if self.report.exists():
            claims = json.loads(self.report.read_text())["claims"]
            if absent := {claim["name"] for claim in claims} - set(self.stored.names):
                wrong.append(f"in the JSON report and not stored: {absent}")
        return wrong

    def _left_behind(self, plan: Plan) -> list[str]:
        """Files that are left, where no process was killed that would have removed them.

        pytest keeps its own folders of its last three runs.
        """
        own = {self.evidence, self.scratch, self.report, self.output}
        left = [path for path in self.folder.iterdir() if path not in own]
        left += [p for p in self.scratch.iterdir() if not p.name.startswith("pytest-of-")]
        for path in left:
            if path.parent == self.scratch:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        excused = plan.signal is signal.SIGKILL or plan.victim != "run"
        return [] if excused else [f"left behind: {path.name}" for path in left]


def _codes(plan: Plan, landed: bool) -> set[int]:
    """The exit codes that are documented for a run that was killed so."""
    if plan.signal is None:
        return {0}
    if not landed or plan.victim == "worker":
        # To its end, without the claims of a worker that died; one that gets Ctrl-C interrupts it.
        return {0, 1, INTERRUPTED} if plan.signal is signal.SIGINT else {0, 1}
    return {-signal.SIGKILL} if plan.signal is signal.SIGKILL else {INTERRUPTED}


def _until(happened: Callable[[], object], seconds: float) -> bool:
    """Whether something happens in so many seconds."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
