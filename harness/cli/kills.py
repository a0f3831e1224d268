"""`assay kills`: injected faults against the claims, family by family."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from transformers.utils import logging

from assay.harness import faults
from assay.harness.checking import cases, outside
from assay.harness.checking.claim import Claim
from assay.harness.cli.arguments import Parser, add_outside, file, whole
from assay.harness.cli.models import Load
from assay.harness.faults import Fault, kills
from assay.harness.faults.kills import Extent, Family, Law, Matrix, Trial
from assay.harness.models.loading.loading import DTYPES
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject import Subject
from assay.harness.report import kills as showing
from assay.harness.results import expectation_files
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import replace_file
from assay.harness.results.specs import ModelSpec
from assay.harness.results.verdicts import Kind

WIDTH = 132
"""Columns of the table where there is no terminal."""


@dataclass(frozen=True)
class Rooms:
    """``claims``, their expectations, and a model for each kind of family."""

    claims: Sequence[ModuleType]
    expectations: Path
    families: Mapping[str, str]
    load: Load


@dataclass(frozen=True)
class Task:
    """One family to inject faults into, in this process or another, which calls ``rooms``."""

    rooms: Callable[[], Rooms]
    family: str
    faults: tuple[str, ...]
    extent: Extent
    dtype: str = "float32"
    examples: int = kills.MUST.examples
    outside: tuple[str, ...] = ()
    """What names claims from outside."""
    alone: bool = False
    """Whether these are in place of Assay's own."""

    def run(self, report: Callable[[str], None] = lambda _: None) -> Family:
        """The family's part of the matrix."""
        trial, model, injected = self._begin(report)
        return trial.family(self.family, model, injected)

    def catches(
        self, laws: Sequence[Law], report: Callable[[str], None] = lambda _: None
    ) -> dict[Law, str]:
        """A fault for each of ``laws`` that catches one in this family."""
        trial, model, injected = self._begin(report)
        return trial.catches(self.family, model, injected, laws)

    def _begin(self, report: Callable[[str], None]) -> tuple[Trial, Subject, list[Fault]]:
        rooms = self.rooms()
        others = [each.module for each in outside.load(self.outside)]
        claims = others if self.alone else [*rooms.claims, *others]
        model = rooms.load(rooms.families[self.family], Options(dtype=self.dtype))
        expected = expectation_files.load(rooms.expectations)
        sensitive = [case for case in cases.collect(claims) if may_notice(case.claim)]
        trial = Trial(sensitive, expected, self.extent, report, self.dtype, self.examples)
        return trial, model, [faults.named(name) for name in self.faults]


def may_notice(claim: Claim) -> bool:
    """Whether a claim may notice a fault injected into a model.

    A law about toys notices faults in the functions that a model shares with them.
    """
    return not claim.about_engines and (not claim.toy or claim.kind is Kind.LAW)


def main(arguments: Sequence[str], rooms: Callable[[], Rooms]) -> int:
    """Print the matrix; 1 if a fault survives, a law kills nothing, or a sound model fails."""
    with _quietly():
        return _main(arguments, rooms)


def _main(arguments: Sequence[str], rooms: Callable[[], Rooms]) -> int:
    options = _parser().parse_args(arguments)
    families = rooms().families
    names = list(dict.fromkeys(known_family(name, families) for name in options.family)) or [
        *families
    ]
    alone, sources = bool(options.outside), tuple(options.outside or outside.installed())
    outside.load(sources)  # their faults are in the catalogue from then on
    own = _faults_of(sources) if alone else tuple(faults.FAULTS)
    selected = tuple(dict.fromkeys(faults.named(name).name for name in options.fault))
    every, extent = selected or own, Extent(options.extent)
    how = extent, options.dtype, options.examples, sources, alone
    tasks = [Task(rooms, name, every, *how) for name in names]
    started = time.perf_counter()
    whole = not selected and not options.family and extent is not Extent.NAMED
    with Working(options.processes) as working:
        matrix = Matrix(tuple(working.families(tasks)), whole, processes=options.processes)
        if whole and extent is Extent.LAWS:
            matrix = working.idle_laws(matrix, tasks)
    matrix = replace(matrix, seconds=time.perf_counter() - started)
    if options.json is not None:
        replace_file(options.json, json.dumps(kills.document(matrix), indent=1) + "\n")
    showing.show(Console(emoji=False, width=None if sys.stdout.isatty() else WIDTH), matrix)
    if alone and matrix.changeless:
        still, ways = ", ".join(matrix.changeless), "alone, in a batch, padded, in parts"
        raise BadInput(f"fault {still}: changes no output of a prompt {ways}, as embeddings")
    return 0 if matrix.holds else 1


def _faults_of(sources: tuple[str, ...]) -> tuple[str, ...]:
    """The faults that claims from outside come with; `BadInput` for one for other claims."""
    numbers = {claim.id for each in outside.load(sources) for _, claim in each.claims}
    found = [fault for fault in faults.FAULTS.values() if fault.file]
    for fault in found:
        if numbers.isdisjoint(fault.caught_by):
            others = ", ".join(fault.caught_by) or "no claim"
            raise BadInput(f"fault {fault.name!r}: caught by {others}, which none of these is")
    if not found:
        raise BadInput(f"--claims {', '.join(sources)}: has no faults (@assay.fault)")
    return tuple(fault.name for fault in found)


def _parser() -> Parser:
    parser = Parser(
        prog="assay kills",
        description="Inject every fault into a model of every family that it applies to, and "
        "report which claims notice.  The exit code is 1 if a fault survives the claims that must "
        "catch it, if a law kills no fault, if a sound model breaks a law, or if no family's "
        "finding has a control that comes out the other way.  Claims and faults of installed "
        "packages count as Assay's.  With --claims: these, in place of Assay's.",
    )
    add = parser.add_argument
    add("--fault", action="append", default=[], metavar="NAME", help="only this one (repeatable)")
    add_outside(parser)
    add("--family", action="append", default=[], metavar="NAME", help="only this (repeatable)")
    add(
        "--extent",
        choices=[each.value for each in Extent],  # whose repr argparse would print
        default=Extent.LAWS.value,
        help="named: each fault with the claims that must catch it, until one does; laws (the "
        "default): then also each law that has caught nothing so far, until it catches a fault",
    )
    add(
        "--dtype",
        choices=sorted(DTYPES),
        default="float32",
        help="dtype of the models (default: float32)",
    )
    add(
        "--examples",
        type=whole(1),
        default=kills.MUST.examples,
        metavar="N",
        help="examples in which a law must catch a fault (default %(default)s; quick has 8)",
    )
    add(
        "--processes", type=whole(1), default=1, metavar="N", help="families at a time (default 1)"
    )
    add("--json", type=file, metavar="FILE", help="write the matrix as JSON")
    return parser


def known_family(name: str, families: Mapping[str, str]) -> str:
    """A family by its own name, its model's, or the model's type."""
    for family, model in families.items():
        if name in (family, model, ModelSpec.parse(model).name):
            return family
    listed = ", ".join(f"{family} ({model})" for family, model in families.items())
    raise BadInput(f"--family {name!r}: no such family; there are {listed}")


class Working:
    """Runs tasks in a number of processes, and reports progress on stderr."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        console = Console(emoji=False, stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self.progress = Progress(
            *columns, console=console, transient=True, disable=not sys.stderr.isatty()
        )
        self.line = self.progress.add_task("injecting faults")

    def __enter__(self) -> Working:
        self.progress.start()
        # Spawned processes, not forked ones: torch's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        many = self.processes > 1
        self.pool = ProcessPoolExecutor(self.processes, context, _quiet) if many else None
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
        self.progress.stop()

    def show(self, what: str) -> None:
        """Show the present task in the progress line."""
        self.progress.update(self.line, description=what)

    def families(self, tasks: Sequence[Task]) -> list[Family]:
        """The families' parts of the matrix, in the order of the tasks."""
        if self.pool is None:
            return [self._report(task.run(self.show)) for task in tasks]
        # The last ones take longest, so they start first.
        waiting = {self.pool.submit(task.run): task.family for task in reversed(tasks)}
        families = {waiting[job]: self._report(job.result()) for job in as_completed(waiting)}
        return [families[task.family] for task in tasks]

    def _report(self, family: Family) -> Family:
        killed = sum(row.killed for row in family.rows)
        applying = sum(row.applies for row in family.rows)
        line = f"{family.name}: {killed} of {applying} killed in {family.seconds:.0f} s"
        self.show(line)
        if self.progress.disable:
            print(line, file=sys.stderr, flush=True)
        return family

    def idle_laws(self, matrix: Matrix, tasks: Sequence[Task]) -> Matrix:
        """The matrix after trying every law that has caught nothing, family after family."""
        tried: dict[Law, set[str]] = {}
        by_name = {task.family: task for task in tasks}
        while shares := kills.shared_out(matrix.uncaught, matrix.families, tried):
            for name, laws in shares.items():
                for law in laws:
                    tried.setdefault(law, set()).add(name)
            caught = self._catches({by_name[name]: laws for name, laws in shares.items()})
            families = tuple(f.catching(caught.get(f.name, {})) for f in matrix.families)
            matrix = replace(matrix, families=families)
        return matrix

    def _catches(self, shares: Mapping[Task, list[Law]]) -> dict[str, dict[Law, str]]:
        if self.pool is None:
            return {task.family: task.catches(laws, self.show) for task, laws in shares.items()}
        waiting = {self.pool.submit(task.catches, laws): task for task, laws in shares.items()}
        self.show(f"{sum(map(len, shares.values()))} laws that have caught no fault yet")
        return {task.family: job.result() for job, task in waiting.items()}


def _quiet() -> None:
    """Silence the libraries' warnings, and use one thread, for tiny models."""
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)


@contextmanager
def _quietly() -> Iterator[None]:
    """The same within a block, in a process that may continue with something else."""
    verbosity, bars, threads = (
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
        torch.get_num_threads(),
    )
    with warnings.catch_warnings():
        _quiet()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
            torch.set_num_threads(threads)
