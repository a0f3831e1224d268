"""`python -m harness kills`: planted faults against the claims, family by family."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from transformers.utils import logging

from harness import cases, expectations, faults, kills
from harness.commands.arguments import Parser, whole
from harness.commands.models import Load
from harness.errors import BadInput
from harness.kills import Extent, Family, Matrix, Trial
from harness.report import kills as showing
from harness.runs import Options
from harness.schema import replace_file

WIDTH = 132
"""Columns of the table where no terminal says how many there are."""


@dataclass(frozen=True)
class Rooms:
    """What is tried: ``claims``, their expectations, and a model for each kind of family."""

    claims: Sequence[ModuleType]
    expectations: Path
    families: Mapping[str, str]
    load: Load


@dataclass(frozen=True)
class Task:
    """One family to be tried, in this process or another: ``rooms`` makes everything there."""

    rooms: Callable[[], Rooms]
    family: str
    faults: tuple[str, ...]
    extent: Extent

    def run(self, told: Callable[[str], None] = lambda _: None) -> Family:
        """The family's part of the matrix."""
        _quiet()
        rooms = self.rooms()
        healthy = rooms.load(rooms.families[self.family], Options())
        expected = expectations.load(rooms.expectations)
        trial = Trial(cases.of(rooms.claims), expected, self.extent, told)
        return trial.family(self.family, healthy, [faults.named(name) for name in self.faults])


def main(arguments: Sequence[str], rooms: Callable[[], Rooms]) -> int:
    """Print the matrix; 1 if a fault survives, a law kills nothing, or a healthy model fails."""
    asked = _parser().parse_args(arguments)
    for path in (asked.json, asked.report):
        if path is not None and path.is_dir():
            raise BadInput(f"{path}: is a folder; give a file's path")
    known = rooms().families
    names = list(dict.fromkeys(_family(name, known) for name in asked.family)) or [*known]
    planned = tuple(dict.fromkeys(faults.named(name).name for name in asked.fault))
    every, extent = planned or tuple(faults.FAULTS), Extent(asked.extent)
    tasks = [Task(rooms, name, every, extent) for name in names]
    started = time.perf_counter()
    found = {family.name: family for family in _run(tasks, asked.processes)}
    matrix = Matrix(
        tuple(found[name] for name in names),
        whole=not planned and not asked.family and extent is not Extent.NAMED,
        seconds=time.perf_counter() - started,
        processes=asked.processes,
    )
    if asked.json is not None:
        replace_file(asked.json, json.dumps(kills.document(matrix), indent=1) + "\n")
    if asked.report is not None:
        replace_file(asked.report, showing.page(matrix))
    showing.show(Console(width=None if sys.stdout.isatty() else WIDTH), matrix)
    return 0 if matrix.holds else 1


def _parser() -> Parser:
    parser = Parser(
        prog="python -m harness kills",
        description="Plant every fault in a model of every family that it applies to, and see "
        "which claims notice.  The exit code is 1 if a fault survives the claims that must catch "
        "it, if a law kills no fault, if a healthy model breaks a law, or if no family's finding "
        "has a control that comes out the other way.",
    )
    add = parser.add_argument
    add("--fault", action="append", default=[], metavar="NAME", help="only this one (repeatable)")
    add("--family", action="append", default=[], metavar="NAME", help="only this (repeatable)")
    add(
        "--extent",
        choices=[*Extent],
        default=Extent.LAWS,
        help="named: each fault with the claims that must catch it, until one does; laws (the "
        "default): as well each law that has caught nothing by then with every fault, until it "
        "catches one; all: every law with every fault",
    )
    add(
        "--processes", type=whole(1), default=1, metavar="N", help="families at a time (default 1)"
    )
    add("--json", type=Path, metavar="FILE", help="write the matrix as JSON")
    add("--report", type=Path, metavar="FILE", help="write the matrix as a page of HTML")
    return parser


def _family(name: str, known: Mapping[str, str]) -> str:
    """A family by its own name, its model's, or the model's type."""
    for family, model in known.items():
        if name in (family, model, model.rpartition(":")[2]):
            return family
    listed = ", ".join(f"{family} ({model})" for family, model in known.items())
    raise BadInput(f"--family {name!r}: there is no such family; there are {listed}")


def _run(tasks: Sequence[Task], processes: int) -> Iterator[Family]:
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with progress:
        line = progress.add_task("planting faults")
        if processes == 1:
            for task in tasks:
                yield task.run(lambda what: progress.update(line, description=what))
            return
        # New processes, not forked ones: torch's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(processes, len(tasks)), context) as pool:
            # Those last in the list take longest.
            waiting = [pool.submit(task.run) for task in reversed(tasks)]
            for done in as_completed(waiting):
                family = done.result()
                progress.update(line, description=f"{family.name} is done")
                yield family


def _quiet() -> None:
    """Nothing of the libraries' advice reaches the terminal; one thread for tiny models."""
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
