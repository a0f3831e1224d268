"""Benchmarks run alone, on pinned threads, and end with a table of goals and results."""

from __future__ import annotations

import functools
import io
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pytest
import torch
from rich.console import Console

from assay.benchmarks import limits, machine, vitals
from assay.benchmarks.figures import Figure, table
from assay.benchmarks.limits import Ceiling
from assay.benchmarks.rounds import Rounds
from assay.benchmarks.stopwatch import Stopwatch
from assay.fixtures.geometries import TooLarge
from assay.fixtures.subjects import LOADER
from assay.harness.checking.absent import Absent
from assay.harness.models import loading
from assay.harness.models.subject import Subject
from assay.harness.plugin.request import RunRequest, dtypes
from assay.harness.results.arrays import Array

FIGURES = pytest.StashKey[list[Figure]]()
DOUBTS = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of threads."""
    usual = os.environ.get("OMP_NUM_THREADS", "1")
    parser.addoption(
        "--threads", type=int, default=int(usual), help="threads of benchmarks (default: 1)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Reject runs with other processes, or without pytest-benchmark."""
    if getattr(config.option, "dist", "no") != "no" or hasattr(config, "workerinput"):
        raise pytest.UsageError("benchmarks: other processes would be timed too; leave out -n")
    if not config.pluginmanager.hasplugin("benchmark"):
        raise pytest.UsageError("benchmarks: pip install -e '.[benchmarks]' -c constraints.txt")
    config.stash[FIGURES], config.stash[DOUBTS] = [], []
    torch.set_num_threads(config.option.threads)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Remove the machine's name and system release; its hardware stays."""
    for name in ("node", "release"):
        machine_info.pop(name, None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``model``: the models of the command line, or the MODELS of the benchmark's file."""
    if "model" in metafunc.fixturenames:
        request = RunRequest.of(metafunc.config)
        specs = request.models if request.named else metafunc.module.MODELS
        metafunc.parametrize("model", specs, indirect=True, scope="session", ids=specs)


@pytest.fixture(scope="session")
def model(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """A model, loaded once; one that is too large for the machine is skipped by name."""
    loader = request.config.stash[LOADER]
    try:
        subject = loader.load(request.param)
    except TooLarge as why:
        pytest.skip(str(why))
    if isinstance(subject, Absent):
        pytest.skip(subject.why)
    yield subject
    loader.forget(request.param)


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> torch.device:
    """The device of the benchmarks: `--device`."""
    return loading.parse_device(RunRequest.of(pytestconfig).loading.device)


@pytest.fixture(scope="session")
def stopwatch(device: torch.device) -> Stopwatch:
    """A stopwatch that waits for the device."""
    return Stopwatch.of(device)


@pytest.fixture(scope="session")
def ceilings(device: torch.device, stopwatch: Stopwatch) -> Callable[[str], Ceiling]:
    """The best matrix product of this run, by arithmetic."""
    return functools.cache(lambda arithmetic: Ceiling(arithmetic, device, stopwatch))


@pytest.fixture
def ceiling(pytestconfig: pytest.Config, ceilings: Callable[[str], Ceiling]) -> Ceiling:
    """The best matrix product in the dtype of the run's first model."""
    return ceilings(dtypes(pytestconfig)[0])


@pytest.fixture(scope="session")
def bandwidth(device: torch.device, stopwatch: Stopwatch) -> float:
    """Bytes per second that the machine copies."""
    return limits.bandwidth(device, stopwatch)


class Report:
    """Puts figures into the table, and figures and other values into the JSON."""

    def __init__(self, benchmark: Any, figures: list[Figure], doubts: list[str]) -> None:
        self.info, self.figures, self.doubts = benchmark.extra_info, figures, doubts
        self.name = benchmark.name

    def figure(
        self,
        name: str,
        what: str,
        sample: Array,
        goal: float | None = None,
        at_most: bool = False,
    ) -> None:
        """Record a figure of some rounds, with its goal if it has one."""
        figure = Figure.of(name, what, sample, goal, at_most)
        self.figures.append(figure)
        self.info[what] = asdict(figure) | {"met": figure.met, "said": str(figure)}

    def doubt(self, rounds: Rounds) -> None:
        """Record doubts about the times of ``rounds``, and the state of the device."""
        doubts = rounds.doubts()
        self.info["doubts"] = doubts
        self.info["vitals"] = [asdict(each) for each in rounds.vitals]
        self.info["laps"] = rounds.seconds
        self.info["beside"] = rounds.others
        self.info["joules"] = rounds.joules
        self.doubts += [f"{self.name}: {why}" for why in doubts]

    def also(self, **values: object) -> None:
        """Record values without a goal."""
        self.info.update(values)


@pytest.fixture
def report(benchmark: Any, pytestconfig: pytest.Config, device: torch.device) -> Report:
    """The report of a benchmark's figures."""
    options = RunRequest.of(pytestconfig).loading
    benchmark.extra_info.update(machine.describe(device))
    benchmark.extra_info.update(dtype=options.dtype, attention=options.attention)
    stash = pytestconfig.stash
    return Report(benchmark, stash[FIGURES], stash[DOUBTS])


Race = Callable[..., Rounds]
"""``race(ours, count, others, ceilings=None)``: see `race`."""


@pytest.fixture
def race(benchmark: Any, report: Report, stopwatch: Stopwatch, device: torch.device) -> Race:
    """Time ``ours`` for a ``count`` of rounds, with the ``others`` in each.

    ``ceilings`` are measured in each round too, as bounds of the machine's speed at the time.
    """

    def run(
        ours: Callable[[], object],
        count: int,
        others: Mapping[str, Callable[[], object]] | None = None,
        ceilings: Mapping[str, Callable[[], float]] | None = None,
    ) -> Rounds:
        beside = {name: stopwatch.timed(call) for name, call in (others or {}).items()}
        beside |= ceilings or {}
        rounds = Rounds(ours, beside, stopwatch, vitals.monitor(device))
        rounds.run(benchmark, count)
        report.doubt(rounds)
        return rounds

    return run


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """The figures with their goals."""
    if figures := config.stash[FIGURES]:
        device = loading.parse_device(RunRequest.of(config).loading.device)
        where = machine.describe(device)
        title = f"{where['card'] or where['processor']}, threads: {where['threads']}"
        terminalreporter.section("goals")
        output = io.StringIO()
        width, _ = shutil.get_terminal_size((100, 24))
        console = Console(file=output, width=width, force_terminal=terminalreporter.hasmarkup)
        console.print(table(figures, title))
        terminalreporter.write(output.getvalue())
        for doubt in config.stash[DOUBTS]:
            terminalreporter.write_line(f"doubt: {doubt}", yellow=True)
