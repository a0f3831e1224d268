"""Benchmarks run alone, on pinned threads, and end with a table of goals and results."""

from __future__ import annotations

import functools
import io
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from assay.benchmarks import limits, machine
from assay.benchmarks.figures import Figure, table
from assay.benchmarks.limits import Ceiling
from assay.benchmarks.rounds import Rounds
from assay.benchmarks.stopwatch import Stopwatch
from assay.fixtures.geometries import TooLarge
from assay.fixtures.subjects import LOADER
from assay.harness.checking.absent import Absent
from assay.harness.models.loading import loading
from assay.harness.models.subject import Subject
from assay.harness.plugin.request import RunRequest, dtypes
from assay.harness.results.arrays import Array

FIGURES = pytest.StashKey[list[Figure]]()
DOUBTS = pytest.StashKey[list[str]]()

WARM = 2
"""Calls before the first round, after which a GPU's clock is steady."""


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


def _device(config: pytest.Config) -> torch.device:
    return loading.parse_device(RunRequest.of(config).loading.device)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    """Remove the machine's name and system release; add its hardware, versions and dtype.

    `pytest-benchmark compare` warns where two runs differ in these.
    """
    for name in ("node", "release"):
        machine_info.pop(name, None)
    attention = RunRequest.of(config).loading.attention
    machine_info.update(machine.describe(_device(config)))
    machine_info.update(dtype=dtypes(config)[0], attention=attention)


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
    return _device(pytestconfig)


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


class Report:
    """Puts figures into the table, and figures and other values into the JSON."""

    def __init__(self, benchmark: Any, figures: list[Figure], doubts: list[str]) -> None:
        self.benchmark, self.figures, self.doubts = benchmark, figures, doubts

    @property
    def seconds(self) -> Array:
        """What pytest-benchmark timed: [rounds]; NaN with ``--benchmark-disable``."""
        stats = self.benchmark.stats
        return np.array(stats.stats.data if stats else [np.nan])

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
        self.also(**{what: asdict(figure) | {"met": figure.met}})

    def rounds(self, rounds: Rounds) -> None:
        """Record what was measured with each round, and doubts about its times."""
        doubts = rounds.doubts()
        self.also(doubts=doubts, beside=rounds.others, laps=[asdict(lap) for lap in rounds.laps])
        self.also(vitals=[asdict(each) for each in rounds.vitals])
        self.doubts += [f"{self.benchmark.name}: {why}" for why in doubts]

    def also(self, **values: object) -> None:
        """Record values without a goal."""
        self.benchmark.extra_info.update(values)


@pytest.fixture
def report(benchmark: Any, pytestconfig: pytest.Config) -> Report:
    """The report of a benchmark's figures."""
    return Report(benchmark, pytestconfig.stash[FIGURES], pytestconfig.stash[DOUBTS])


Race = Callable[..., Rounds]
"""``race(ours, count, others, ceilings, fresh, warm)``: see `race`."""


@pytest.fixture
def race(benchmark: Any, report: Report, stopwatch: Stopwatch, device: torch.device) -> Race:
    """Time ``ours`` for a ``count`` of rounds, with the ``others`` in each.

    ``ceilings`` are measured in each round too, as bounds of the machine's speed at the time.
    The device's cache is emptied before each call; there are ``warm`` calls before the first.
    ``fresh`` is called after the last round: it checks that answers to new inputs are right.
    """

    def run(
        ours: Callable[[], object],
        count: int,
        others: Mapping[str, Callable[[], object]] | None = None,
        ceilings: Mapping[str, Callable[[], float]] | None = None,
        fresh: Callable[[], object] | None = None,
        warm: int = WARM,
    ) -> Rounds:
        beside = {name: stopwatch.timed(call) for name, call in (others or {}).items()}
        beside |= ceilings or {}
        rounds = Rounds(ours, beside, stopwatch, machine.monitor(device))
        rounds.flush = limits.flush(device)
        for _ in range(warm):
            stopwatch.lap(ours)
        rounds.run(benchmark, count)
        report.rounds(rounds)
        if fresh is not None:
            fresh()
        return rounds

    return run


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """The figures with their goals."""
    if figures := config.stash[FIGURES]:
        where = machine.describe(_device(config))
        title = f"{where['gpu'] or where['processor']}, threads: {where['threads']}"
        terminalreporter.section("goals")
        output = io.StringIO()
        width, _ = shutil.get_terminal_size((100, 24))
        console = Console(file=output, width=width, force_terminal=terminalreporter.hasmarkup)
        console.print(table(figures, title))
        terminalreporter.write(output.getvalue())
        for doubt in config.stash[DOUBTS]:
            terminalreporter.write_line(f"doubt: {doubt}", yellow=True)
