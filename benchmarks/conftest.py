"""Benchmarks run alone, on pinned threads, and end with a table of goals and what was reached."""

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
from assay.harness.plugin.request import RunRequest
from assay.harness.results.arrays import Array

FIGURES = pytest.StashKey[list[Figure]]()
DOUBTS = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many threads."""
    usual = os.environ.get("OMP_NUM_THREADS", "1")
    parser.addoption(
        "--threads", type=int, default=int(usual), help="threads of benchmarks (default: 1)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Refuse to time anything beside other processes, or without pytest-benchmark."""
    if getattr(config.option, "dist", "no") != "no" or hasattr(config, "workerinput"):
        raise pytest.UsageError("benchmarks: other processes would be timed too; leave out -n")
    if not config.pluginmanager.hasplugin("benchmark"):
        raise pytest.UsageError("benchmarks: pip install -e '.[benchmarks]' -c constraints.txt")
    config.stash[FIGURES], config.stash[DOUBTS] = [], []
    torch.set_num_threads(config.option.threads)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """A machine's name and system are nobody's business; what it is made of stays."""
    for name in ("node", "release"):
        machine_info.pop(name, None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``model``: the models asked for, or the MODELS of the benchmark's file."""
    if "model" in metafunc.fixturenames:
        asked = RunRequest.of(metafunc.config)
        specs = asked.models if asked.named else metafunc.module.MODELS
        metafunc.parametrize("model", specs, indirect=True, scope="session", ids=specs)


@pytest.fixture(scope="session")
def model(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """A model, loaded once; one that is too large for the machine is left out by name."""
    loader = request.config.stash[LOADER]
    try:
        loaded = loader.load(request.param)
    except TooLarge as why:
        pytest.skip(str(why))
    if isinstance(loaded, Absent):
        pytest.skip(loaded.why)
    yield loaded
    loader.forget(request.param)


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> torch.device:
    """Where benchmarks compute: `--device`."""
    return loading.parse_device(RunRequest.of(pytestconfig).loading.device)


@pytest.fixture(scope="session")
def stopwatch(device: torch.device) -> Stopwatch:
    """What times: it waits for the device."""
    return Stopwatch.of(device)


@pytest.fixture(scope="session")
def ceilings(device: torch.device, stopwatch: Stopwatch) -> Callable[[str], Ceiling]:
    """The best matrix product of this run, by arithmetic."""
    return functools.cache(lambda arithmetic: Ceiling(arithmetic, device, stopwatch))


@pytest.fixture
def ceiling(pytestconfig: pytest.Config, ceilings: Callable[[str], Ceiling]) -> Ceiling:
    """The same in the dtype of the run."""
    return ceilings(RunRequest.of(pytestconfig).loading.dtype)


@pytest.fixture(scope="session")
def bandwidth(device: torch.device, stopwatch: Stopwatch) -> float:
    """Bytes a second that the machine copies."""
    return limits.bandwidth(device, stopwatch)


class Report:
    """Figures go into the table; they and whatever else there is to say, into the JSON."""

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
        """Keep a figure of some rounds, with its goal if it has one."""
        made = Figure.of(name, what, sample, goal, at_most)
        self.figures.append(made)
        self.info[what] = asdict(made) | {"met": made.met, "said": str(made)}

    def doubt(self, rounds: Rounds) -> None:
        """Keep why the times of ``rounds`` should not be believed, and what the device said."""
        found = rounds.doubts()
        self.info["doubts"] = found
        self.info["vitals"] = [asdict(each) for each in rounds.vitals]
        self.info["laps"] = rounds.seconds
        self.info["beside"] = rounds.others
        self.info["joules"] = rounds.joules
        self.doubts += [f"{self.name}: {why}" for why in found]

    def also(self, **more: object) -> None:
        """Keep what has no goal."""
        self.info.update(more)


@pytest.fixture
def report(benchmark: Any, pytestconfig: pytest.Config, device: torch.device) -> Report:
    """Where a benchmark's figures go."""
    asked = RunRequest.of(pytestconfig).loading
    benchmark.extra_info.update(machine.describe(device))
    benchmark.extra_info.update(dtype=asked.dtype, attention=asked.attention)
    stash = pytestconfig.stash
    return Report(benchmark, stash[FIGURES], stash[DOUBTS])


Race = Callable[..., Rounds]
"""``race(ours, count, others, product=None)``: see `race`."""


@pytest.fixture
def race(benchmark: Any, report: Report, stopwatch: Stopwatch, device: torch.device) -> Race:
    """Time ``ours`` for a ``count`` of rounds, each after the ``others`` were timed beside it.

    ``product`` is measured in each round too, and bounds what the machine could have done then.
    """

    def run(
        ours: Callable[[], object],
        count: int,
        others: Mapping[str, Callable[[], object]] | None = None,
        product: Ceiling | None = None,
    ) -> Rounds:
        beside = {name: stopwatch.timed(call) for name, call in (others or {}).items()}
        if product is not None:
            beside["product"] = product
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
        said = f"{where['card'] or where['processor']}, threads: {where['threads']}"
        terminalreporter.section("goals")
        printed = io.StringIO()
        width, _ = shutil.get_terminal_size((100, 24))
        console = Console(file=printed, width=width, force_terminal=terminalreporter.hasmarkup)
        console.print(table(figures, said))
        terminalreporter.write(printed.getvalue())
        for doubt in config.stash[DOUBTS]:
            terminalreporter.write_line(f"doubt: {doubt}", yellow=True)
