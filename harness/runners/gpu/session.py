"""Runs the steps of `assay gpu` in their order, within their time, and keeps what they found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.harness.comparison import joining
from assay.harness.comparison.changes import Flip
from assay.harness.comparison.judging import compare
from assay.harness.models import shortage
from assay.harness.results.errors import BadInput, printable
from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Result
from assay.harness.runners import runner
from assay.harness.runners.gpu import child
from assay.harness.runners.gpu.results import (
    CUT,
    DONE,
    FAILED,
    SKIPPED,
    ResultFile,
    figure,
    of_claims,
)
from assay.harness.runners.gpu.steps import BENCHMARKS, CLAIMS, LIMITS, Step, stage_limit

GRACE = 10.0
"""Seconds that an interrupted step has to end by itself."""

TICK = 0.2
"""Seconds between two looks at a running step."""

ANSWER = 120.0
"""Seconds that the device has to answer when it is looked at."""

GPU_FAILED = f"ERROR: {shortage.GPU}"
"""How the line begins that a run prints after an error on the GPU that ends its process."""

RESTARTS = 30
"""The most processes that resume such a run.  Each skips the claim that ended the last one."""

GOALS = {
    "laws/rotary-8b": {"seconds": 600.0, "GB on the GPU at the peak": 40.0},
}
"""Upper bounds of figures, by step."""


class Vanished(Exception):
    """The GPU does not answer any more; the message says how that was seen."""


def examine(device: str) -> dict[str, Any]:
    """What `look.describe` says of the device, read by a process of its own; raises `BadInput`.

    The process that runs the steps never uses the GPU: it would hold memory there.
    """
    command = [sys.executable, "-m", "assay.harness.runners.gpu.child", "--look"]
    command.append(f"--device={device}")
    try:
        run = subprocess.run(
            command, env=_environment(), capture_output=True, text=True, timeout=ANSWER
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"{device}: does not answer within {ANSWER:g} s") from None
    lines = [line.strip() for line in (run.stdout + run.stderr).splitlines() if line.strip()]
    if run.returncode == 0 and run.stdout.strip():
        return dict(json.loads(run.stdout.strip().splitlines()[-1]))
    said = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    why = f"{device}: cannot be used ({(lines or ['no output'])[-1]})"
    raise BadInput(said[0] if said else why)


def _environment() -> dict[str, str]:
    """The variables of a step's process."""
    own = {k: v for k, v in os.environ.items() if k not in runner.UNWANTED and k[:6] != "PYTEST"}
    plain = {"PYTHONPATH": str(runner.PACKAGE), "COLUMNS": "160", "NO_COLOR": "1"}
    return {**own, **plain, "TOKENIZERS_PARALLELISM": "false"}


Files = Callable[[str], Path]
"""The path of a step's file, by its suffix."""


def pytest_command(step: Step, files: Files, seconds: float) -> list[str]:
    """The command line of a step that has so many ``seconds`` to begin benchmarks in."""
    if step.kind == BENCHMARKS:  # those that an interrupted run kept are left out
        more = [f"--keep={files('jsonl')}", f"--seconds={seconds:.0f}"]
    else:
        more = [f"--evidence={files('sqlite')}", "--resume"]
    settings = str(runner.ROOT / "pyproject.toml")
    return [
        *(sys.executable, "-m", "assay.harness.runners.gpu.child", f"--device={step.device}"),
        f"--peaks={files('peaks')}",
        *([f"--sdpa={step.sdpa}"] if step.sdpa else []),
        *("--", "-c", settings, "-p", "assay.harness.runners.leash", "-p", "no:cacheprovider"),
        *("-rs", *step.arguments, f"--device={step.device}", *more),
    ]


@dataclass
class Running:
    """A step's process, whose output begins at byte ``log`` of its log.

    ``cut`` says that its time is over; ``restarts`` counts the processes before it.
    """

    step: Step
    process: subprocess.Popen[bytes]
    began: float
    until: float
    log: int
    cut: bool = False
    restarts: int = 0


@dataclass
class Session:
    """All steps into ``results``; what they write otherwise goes into ``folder``.

    ``minutes`` are the most for all of them; ``at_once`` how many of those that are not timed run
    together.  ``tell`` gets a line for what happens, ``examine`` looks at the device.
    """

    results: ResultFile
    folder: Path
    minutes: float
    at_once: int
    tell: Callable[[str], None]
    examine: Callable[[str], Mapping[str, Any]] = examine
    rehearse: bool = False
    command: Callable[[Step, Files, float], list[str]] = pytest_command
    unlike: list[str] = field(default_factory=list)

    def run(self, steps: Sequence[Step], resume: bool) -> None:
        """Run every step that is not done; raises `Vanished` where the GPU is gone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + 60 * self.minutes
        for stage in LIMITS:
            own = [step for step in steps if step.stage == stage]
            todo = [step for step in own if not (resume and self.results.is_done(step.key))]
            for step in set(own) - set(todo):
                self.tell(f"{step.key}: {self.results.steps[step.key]['state']} before")
            if todo:
                limit = stage_limit(stage, self.minutes, self.rehearse)
                self._stage(todo, min(end, time.monotonic() + limit))
            self._compare(own)
        self.results.write()

    def _stage(self, waiting: list[Step], until: float) -> None:
        """Run the steps of one stage until its time is over."""
        running: list[Running] = []
        waiting = list(waiting)
        try:
            while waiting or running:
                now = time.monotonic()
                if waiting and now >= until:
                    for step in waiting:
                        self._settle(step, CUT, "the stage's time was over before it began", 0.0)
                    waiting = []
                room = self.at_once if waiting and waiting[0].beside else 1
                if waiting and len(running) < room and all(r.step.beside for r in running):
                    step = waiting.pop(0)
                    running.append(self._start(step, min(until, now + step.limit)))
                    continue
                for each in list(running):
                    if not self._ended(each):
                        continue
                    running.remove(each)
                    if self._may_resume(each):
                        running.append(self._resumed(each))
                    else:
                        self._end(each)
                time.sleep(TICK)
        finally:
            for each in running:  # interrupted: keep what they have found
                _stop(each.process)
                self._keep(each, CUT, "interrupted")

    def _start(self, step: Step, until: float) -> Running:
        self.tell(f"{step.key}: …")
        seconds = max(1.0, until - time.monotonic() - GRACE)
        command = self.command(step, lambda suffix: self._file(step, suffix), seconds)
        with self._file(step, "log").open("ab") as log:
            before = log.tell()
            process = subprocess.Popen(
                command,
                cwd=runner.ROOT,
                env=_environment(),
                stdin=subprocess.PIPE,  # see `harness.runners.leash`
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return Running(step, process, time.monotonic(), until, before)

    def _may_resume(self, running: Running) -> bool:
        """Whether an error on the GPU ended the process, so that other claims need a new one."""
        step = running.step
        if step.kind != CLAIMS or running.cut or running.process.returncode in runner.SETTLED:
            return False
        output = self._file(step, "log").read_bytes()[running.log :].decode(errors="replace")
        failed = any(line.startswith(GPU_FAILED) for line in output.splitlines())
        return failed and running.restarts < RESTARTS and time.monotonic() < running.until

    def _resumed(self, running: Running) -> Running:
        """Resume a step in a new process."""
        self.tell(f"{running.step.key}: {shortage.GPU}; resumed in a new process")
        resumed = self._start(running.step, running.until)
        resumed.began, resumed.restarts = running.began, running.restarts + 1
        return resumed

    def _ended(self, running: Running) -> bool:
        """Whether the process is over; it is ended where its time is.  Keeps what is new."""
        if running.step.kind == BENCHMARKS and self.results.take(self._entries(running.step)):
            self.results.write()
        if running.process.poll() is not None:
            return True
        if time.monotonic() >= running.until:
            running.cut = True
            _stop(running.process)
            return True
        return False

    def _end(self, running: Running) -> None:
        """Note how a step ended; look whether the GPU is still there if it did not end well."""
        code, step = running.process.returncode, running.step
        output = self._file(step, "log").read_text("utf-8", errors="replace")
        complaint = printable(runner.complaint(output))[:300]
        if running.cut:
            self._keep(running, CUT, f"stopped after {time.monotonic() - running.began:.0f} s")
        elif code in runner.SETTLED:
            self._keep(running, *self._outcome(step, code, output))
        elif code == child.UNFIT or "not installed" in complaint or "cannot use" in complaint:
            self._keep(running, SKIPPED, complaint)
        else:
            self._keep(running, FAILED, f"{complaint} ({runner.died(code)})")
        state = self.results.steps[step.key]["state"]
        if state in (CUT, FAILED) and step.device != "cpu":
            try:
                self.examine(step.device)
            except BadInput as why:
                raise Vanished(str(why)) from why

    def _outcome(self, step: Step, code: int, output: str) -> tuple[str, str]:
        """The state of a step whose run ended, and why if it is not simply done."""
        if step.kind == CLAIMS:
            return DONE, "" if code == 0 else "not all as expected"
        if code == 0:
            return DONE, ""
        failed = [line for line in output.splitlines() if line.startswith("FAILED")]
        return FAILED, printable(failed[-1] if failed else "a benchmark failed")[:300]

    def _keep(self, running: Running, state: str, why: str) -> None:
        """Put what a step found into the result file."""
        step, seconds = running.step, time.monotonic() - running.began
        if step.kind == BENCHMARKS:
            self.results.take(self._entries(step))
        else:
            about = {"device": step.device} if step.device == "cpu" else {}
            results = self._claims(step)
            peaks = child.read(self._file(step, "peaks"))
            if results:
                about = {**self.results.about, **_settings(step), **about}
                goals = GOALS.get(step.key, {})
                entry = of_claims(step.key, results, about, seconds, peaks, goals)
                self.results.take([entry])
        self._settle(step, state, why, seconds)

    def _settle(self, step: Step, state: str, why: str, seconds: float) -> None:
        self.results.settle(step.key, state, why, seconds)
        self.tell(f"{step.key}: {state} in {seconds:.0f} s{f', {why}' if why else ''}")

    def _entries(self, step: Step) -> list[dict[str, Any]]:
        """The benchmarks that a step has finished so far."""
        entries = []
        with suppress(OSError):
            for line in self._file(step, "jsonl").read_text("utf-8").splitlines():
                with suppress(ValueError):  # the last line may be half-written
                    entries.append(json.loads(line))
        return entries

    def _claims(self, step: Step) -> list[Result]:
        """The results of a step's latest run."""
        path = self._file(step, "sqlite")
        if not path.is_file():
            return []
        with Evidence.read(path) as evidence:
            runs = evidence.runs()
            return evidence.results(runs[-1].id) if runs else []

    def _compare(self, steps: Sequence[Step]) -> None:
        """Compare the verdicts of steps with those of the same claims on the processor."""
        keys = {step.key: step for step in steps}
        for step in steps:
            entry = self.results.entries.get(f"gpu/{step.key}")
            if not step.versus or entry is None:
                continue
            files = [str(self._file(each, "sqlite")) for each in (keys[step.versus], step)]
            try:
                comparison = compare(*joining.pair(*files))
            except BadInput as why:
                self.results.steps[step.key]["compared"] = str(why)
                continue
            worse = comparison.flips(Flip.REGRESSION)
            other = [each for each in comparison.claims if each.flip and each not in worse]
            about, name = entry["extra_info"], "verdicts worse than the processor's"
            about[name] = figure(step.key, name, len(worse), 0.0)
            name = "other verdicts unlike the processor's"
            about[name] = figure(step.key, name, len(other), None)
            about["unlike"] = [_words(each) for each in (*worse, *other)]
            self.unlike += [f"{step.key}: {_words(each)}" for each in worse]
            for words in about["unlike"]:
                self.tell(f"{step.key}: {words}")

    def _file(self, step: Step, suffix: str) -> Path:
        name = "".join(char if char.isalnum() or char in "-_" else "-" for char in step.key)
        return self.folder / f"{name}.{suffix}"


def _settings(step: Step) -> dict[str, str]:
    """The dtype and the attention of a step, as benchmarks name them."""
    words = dict(each[2:].split("=", 1) for each in step.arguments if "=" in each)
    attention = f"sdpa, {step.sdpa}" if step.sdpa else words.get("attention", "")
    settings = {"dtype": words.get("dtype", "float32"), "attention": attention}
    return {name: value for name, value in settings.items() if value}


def _words(change: Any) -> str:
    claim, name, subject = change.key
    before, after = (each["verdict"] for each in (change.before, change.after))
    return f"{claim} {name} on {subject}: {before} on the processor, {after} on the device"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process, then end it: what it has written by then is kept."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    if process.poll() is None:
        process.kill()
        process.wait()
