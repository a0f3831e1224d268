"""Benchmarks run alone, on pinned threads, and end with a table of goals and what was reached."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import pytest
import torch
from rich.console import Console

from benchmarks import machine
from benchmarks.figures import Figure, table
from benchmarks.operations import Ceiling
from fixtures.subjects import LOADER
from harness import loading, options
from harness.arrays import Array
from harness.subject import Subject

FIGURES = pytest.StashKey[list[Figure]]()


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
    config.stash[FIGURES] = []
    torch.set_num_threads(config.option.threads)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``model``: the models asked for, or the MODELS of the benchmark's file."""
    if "model" in metafunc.fixturenames:
        specs = metafunc.config.option.models or metafunc.module.MODELS
        metafunc.parametrize("model", specs, indirect=True, scope="session", ids=specs)


@pytest.fixture(scope="session")
def model(request: pytest.FixtureRequest) -> Subject:
    """A model, loaded once."""
    return request.config.stash[LOADER].load(request.param)


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> torch.device:
    """Where benchmarks compute: `--device`."""
    return loading.parse_device(pytestconfig.option.device)


@pytest.fixture(scope="session")
def ceiling(pytestconfig: pytest.Config, device: torch.device) -> Ceiling:
    """The best matrix product of this run."""
    dtype = loading.parse_dtype(options.loading_options(pytestconfig).dtype)
    return Ceiling(dtype, device, machine.clock(device))


class Report:
    """Figures go into the table; they and whatever else there is to say, into the JSON."""

    def __init__(self, benchmark: Any, figures: list[Figure]) -> None:
        self.info, self.figures = benchmark.extra_info, figures

    def figure(
        self, name: str, what: str, sample: Array, goal: float, at_most: bool = False
    ) -> None:
        """Keep a figure of some rounds."""
        made = Figure.of(name, what, sample, goal, at_most)
        self.figures.append(made)
        self.info[what] = asdict(made) | {"met": made.met, "said": str(made)}

    def also(self, **more: object) -> None:
        """Keep what has no goal."""
        self.info.update(more)


@pytest.fixture
def report(benchmark: Any, pytestconfig: pytest.Config, device: torch.device) -> Report:
    """Where a benchmark's figures go."""
    benchmark.extra_info.update(machine.describe(device))
    return Report(benchmark, pytestconfig.stash[FIGURES])


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """The figures with their goals."""
    if figures := config.stash[FIGURES]:
        device = loading.parse_device(config.option.device)
        where = machine.describe(device)
        said = f"{where['card'] or where['processor']}, threads: {where['threads']}"
        terminalreporter.section("goals")
        console = Console(file=terminalreporter._tw._file, width=terminalreporter._tw.fullwidth)
        console.print(table(figures, said))
