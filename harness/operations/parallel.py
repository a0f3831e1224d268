"""A model spread over two processes on this machine's processors (`harness.operations.ranks`).

The processes are started for a subject's first request, load their parts of it, and end with it.
They talk over gloo, which is part of torch.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.harness.models.reference.float64_copies import same_rows
from assay.harness.models.subject import Subject, compat, experts
from assay.harness.models.subject.rows import Rows
from assay.harness.operations import ranks, variants
from assay.harness.operations.generation import Generated
from assay.harness.operations.ranks import LAST_WORDS, PROCESSES, Source
from assay.harness.operations.training import Gradients, Sample
from assay.harness.results.errors import BadInput, Missing, printable, shortened

SIZES = {"tensor": {"tp_size": PROCESSES}, "expert": {"tp_size": PROCESSES, "ep_size": PROCESSES}}
"""The plans, by the capability `<plan>-parallel`: over how many processes each kind goes."""

PATIENCE = 120.0
"""Seconds that a request may take: starting the processes, on a busy machine, is most of it."""

FAREWELL = 5.0
"""Seconds that the second process has to answer, once the first one's answer is an error."""


class ProcessesFailed(RuntimeError):
    """The model's code, or the library's, raised an error in a process; the message quotes it."""


class ProcessesLost(BadInput):
    """A process died or did not answer, which says nothing about the model; the message quotes
    its last words.
    """


def rows(subject: Subject, plan: str, ids: Tensor, zeroed: bool = False) -> list[Rows]:
    """Each process's rows of a pass over ``ids`` [batch, n].

    ``plan`` is one of `SIZES`.  With ``zeroed`` a shard of one weight is zero.  Raises
    `ProcessesFailed`, `ProcessesLost`, and `Missing` where they cannot run here.
    """
    return _spread(subject, plan)(ranks.rows, plan, ids, zeroed)


def greedy(subject: Subject, plan: str, ids: Tensor, zeroed: bool = False) -> list[Generated]:
    """Each process's greedy continuation of ``ids`` [batch, n], as `rows` raises and is zeroed."""
    return _spread(subject, plan)(ranks.greedy, plan, ids, zeroed)


def gradients(
    subject: Subject,
    plan: str,
    samples: Sequence[Sample],
    names: Sequence[str],
    zeroed: bool = False,
) -> list[Gradients]:
    """Each process's `training.gradients`, gathered; as `rows` raises and is zeroed."""
    return _spread(subject, plan)(ranks.gradients, plan, list(samples), list(names), zeroed)


class Processes:
    """Two processes, and the plans by which they have loaded parts of a model."""

    def __init__(self) -> None:
        self.loaded: dict[str, list[str]] = {}
        self._in_step = False
        self._folder = tempfile.TemporaryDirectory()
        self._connections: list[Connection] = []
        self._running: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(PROCESSES):
                self._start(rank)
        except BaseException:
            self.end()
            raise

    def _start(self, rank: int) -> None:
        ours, theirs = Pipe()
        self._connections.append(ours)
        paths = [os.path.abspath(path) for path in sys.path]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": "1",
            "TRANSFORMERS_VERBOSITY": "error",
            "CUDA_VISIBLE_DEVICES": "",
            "HIP_VISIBLE_DEVICES": "",
            **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(PROCESSES)},
        }
        with self._log(rank).open("wb") as log, theirs:
            command = [
                *(sys.executable, "-m", ranks.__name__, str(theirs.fileno()), str(rank)),
                os.path.join(self._folder.name, "store"),
            ]
            self._running.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _log(self, rank: int) -> Path:
        return Path(self._folder.name) / f"{rank}.log"

    @property
    def alive(self) -> bool:
        """Whether both run."""
        return bool(self._running) and all(each.poll() is None for each in self._running)

    def __call__(self, function: Any, *arguments: Any) -> list[Any]:
        """What each process's ``function(rank, *arguments)`` returns.

        Ends the processes where it is left by an exception, unless both have answered.
        """
        self._in_step = False
        request = pickle.dumps((f"{function.__module__}:{function.__name__}", *arguments))
        try:
            for rank, connection in enumerate(self._connections):
                try:
                    connection.send_bytes(request)
                except OSError:
                    self._died(rank)
            return self._answers()
        except BaseException:
            if not self._in_step:
                self.end()
            raise

    def _answers(self) -> list[Any]:
        answers: dict[int, Any] = {}
        errors: dict[int, str] = {}
        missing: list[str] = []
        until = time.monotonic() + PATIENCE
        waiting = set(range(PROCESSES))
        while waiting:
            left = max(0.0, until - time.monotonic())
            ready = wait([self._connections[rank] for rank in waiting], left)
            if not ready:
                break
            for rank in [each for each in waiting if self._connections[each] in ready]:
                waiting.remove(rank)
                try:
                    kind, answer = pickle.loads(self._connections[rank].recv_bytes())
                except (EOFError, OSError):
                    self._died(rank)
                if kind == "missing":
                    missing.append(answer)
                if kind == "lost":
                    raise ProcessesLost(f"process {rank} of {PROCESSES}: {answer}")
                if kind == "raised":
                    errors[rank] = answer
                    until = min(until, time.monotonic() + FAREWELL)
                answers[rank] = answer
        self._in_step = not waiting
        if missing:
            raise Missing(missing[0])
        if errors:
            # The other one's error may be that the first one no longer takes part.
            rank, error = next(iter(errors.items()))
            raise ProcessesFailed(f"process {rank} of {PROCESSES} raised {_quoted(error)}")
        if waiting:
            rank = min(waiting)
            why = f"process {rank} of {PROCESSES} gave no answer in {PATIENCE:g} seconds"
            raise ProcessesLost(f"{why}; its last words: {self._last_words(rank)}")
        return [answers[rank] for rank in range(PROCESSES)]

    def _died(self, rank: int) -> None:
        """Raise `ProcessesLost` about a process that has closed its connection."""
        try:
            code = self._running[rank].wait(FAREWELL)
        except subprocess.TimeoutExpired:
            code = None
        why = f"process {rank} of {PROCESSES} ended (exit code {code})"
        raise ProcessesLost(f"{why}; its last words: {self._last_words(rank)}")

    def _last_words(self, rank: int) -> str:
        text = self._log(rank).read_text(errors="replace").strip()
        return _quoted(text[-LAST_WORDS:]) if text else "none"

    def end(self) -> None:
        """End the processes; harmless where they have ended."""
        for connection in self._connections:
            connection.close()
        for each in self._running:
            each.kill()
            each.wait()
        self._connections, self._running = [], []
        self._folder.cleanup()


def _quoted(text: str) -> str:
    return shortened(printable(text), LAST_WORDS)


_PROCESSES: weakref.WeakKeyDictionary[Subject, Processes] = weakref.WeakKeyDictionary()
"""The processes of the last subject that was spread."""


def _spread(subject: Subject, plan: str) -> Processes:
    """The processes of ``subject``, which have loaded it by ``plan``.

    Those of another subject end: a run checks one subject after the other.
    """
    processes = _PROCESSES.get(subject)
    if processes is None or not processes.alive:
        end_all()
        processes = _PROCESSES[subject] = Processes()
        weakref.finalize(subject, processes.end)
    if plan not in processes.loaded:
        processes.loaded[plan] = _load(processes, subject, plan)
    return processes


def _load(processes: Processes, subject: Subject, plan: str) -> list[str]:
    """Load a saved copy of the subject; returns the names of the parameters that are divided."""
    own_model, own = subject.model, type(subject.model)
    if not same_rows(subject, variants.saved_and_loaded(subject)):  # loading loses hooks, patches
        raise Missing(f"{plan}-parallel: the model gives other rows once it is saved and loaded")
    with variants.saved(subject) as folder:
        source = Source(
            *(subject.name, folder, f"{own.__module__}:{own.__qualname__}", subject.dtype),
            attention=subject.attention,
            experts=tuple(name for _, name in compat.settings(own_model, experts.IMPLEMENTATION)),
            attends=subject.settings.attends,
            sow=() if subject.injected is None else subject.injected.elsewhere,
        )
        divided: list[str] = processes(ranks.load, plan, source, SIZES[plan])[0]
    if not divided:
        raise Missing(f"{plan}-parallel: the plan divides none of the model's parameters")
    return divided


def end_all() -> None:
    """End the processes of every subject."""
    for processes in list(_PROCESSES.values()):
        processes.end()
    _PROCESSES.clear()
