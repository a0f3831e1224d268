"""Benchmarks run alone, on pinned threads, and end with a table of goals and results."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from assay.benchmarks import limits
from assay.benchmarks.figures import Figure, table
from assay.benchmarks.limits import Ceiling
from assay.benchmarks.rounds import Rounds
from assay.benchmarks.stopwatch import Stopwatch
from assay.fixtures.geometries import TooLarge
from assay.fixtures.subjects import LOADER
from assay.harness.checking.absent import Absent
from assay.harness.models import loading, machine, vitals
from assay.harness.models.subject import Subject
from assay.harness.plugin.request import RunRequest, dtypes
from assay.harness.results.arrays import Array

FIGURES = pytest.StashKey[list[Figure]]()
DOUBTS = pytest.StashKey[list[str]]()
BEGUN = pytest.StashKey[float]()
PASSED = pytest.StashKey[bool]()

MOST = 4
"""Multiple of a benchmark's rounds that are added at most, to know the mean to a hundredth."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of threads."""
    usual = os.environ.get("OMP_NUM_THREADS", "1")
    parser.addoption(
        "--threads", type=int, default=int(usual), help="threads of benchmarks (default: 1)"
    )
    add = parser.addoption
    add("--rehearse", action="store_true", help="small sizes and few rounds: to see that they run")
    add(
        "--keep",
        type=Path,
        metavar="FILE",
        help="append each benchmark to FILE as it ends, a line of JSON; those in it are left out",
    )
    add("--seconds", type=float, metavar="S", help="begin no benchmark after so many seconds")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Reject runs with other processes, or without pytest-benchmark."""
    if getattr(config.option, "dist", "no") != "no" or hasattr(config, "workerinput"):
        raise pytest.UsageError("benchmarks: other processes would be timed too; leave out -n")
    if not config.pluginmanager.hasplugin("benchmark"):
        raise pytest.UsageError("benchmarks: pip install -e '.[benchmarks]' -c constraints.txt")
    config.stash[FIGURES], config.stash[DOUBTS] = [], []
    config.stash[BEGUN] = time.monotonic()
    if config.option.rehearse:
        limits.SIZES.update(dict.fromkeys(limits.SIZES, (256, 512, 512)))
        limits.COPIED.update(dict.fromkeys(limits.COPIED, 2**24))
    torch.set_num_threads(config.option.threads)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Remove the machine's name and system release; its hardware stays."""
    for name in ("node", "release"):
        machine_info.pop(name, None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out benchmarks that are kept already; set the sizes of a rehearsal."""
    kept = {entry["fullname"] for entry in entries(config.option.keep)}
    left_out = [item for item in items if item.nodeid in kept]
    if config.option.rehearse:
        for module in {item.module for item in items if isinstance(item, pytest.Function)}:
            for name, value in getattr(module, "REHEARSAL", {}).items():
                setattr(module, name, value)
        left_out += [item for item in items if _is_large(item) and item not in left_out]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_large(item: pytest.Item) -> bool:
    """Whether a benchmark is no part of a rehearsal, by its module."""
    large = getattr(getattr(item, "module", None), "LARGE", ())
    return any(words in item.name for words in large)


def entries(path: Path | None) -> list[dict[str, Any]]:
    """The benchmarks in a file of `--keep`; its last line may be half-written."""
    found = []
    if path is not None and path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what would begin after the time is over."""
    limit = item.config.option.seconds
    if limit is not None and time.monotonic() - item.config.stash[BEGUN] > limit:
        pytest.skip(f"the {limit:g} seconds are over")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    """Note whether a benchmark passed: only then its times are kept."""
    outcome: Any = yield
    if call.when == "call":
        item.stash[PASSED] = outcome.get_result().passed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``model``: the models of the command line, or the MODELS of the benchmark's file."""
    if "model" in metafunc.fixturenames:
        request = RunRequest.of(metafunc.config)
        models = metafunc.module.MODELS
        if metafunc.config.option.rehearse:
            models = getattr(metafunc.module, "REHEARSED", models)
        specs = request.models if request.named else models
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
        self.info["device_seconds"] = [lap.device for lap in rounds.laps if lap.device]
        known = np.isfinite(rounds.error)
        self.info["relative_standard_error"] = rounds.error if known else None
        self.info["quantiles"] = rounds.quantiles
        self.doubts += [f"{self.name}: {why}" for why in doubts]

    def also(self, **values: object) -> None:
        """Record values without a goal."""
        self.info.update(values)


@pytest.fixture
def report(
    request: pytest.FixtureRequest,
    benchmark: Any,
    pytestconfig: pytest.Config,
    device: torch.device,
) -> Iterator[Report]:
    """The report of a benchmark's figures, kept as the benchmark ends."""
    options = RunRequest.of(pytestconfig).loading
    benchmark.extra_info.update(machine.describe(device))
    benchmark.extra_info.update(dtype=options.dtype, attention=options.attention)
    if pytestconfig.option.rehearse:
        benchmark.extra_info["rehearsal"] = "yes"
    stash = pytestconfig.stash
    yield Report(benchmark, stash[FIGURES], stash[DOUBTS])
    path = pytestconfig.option.keep
    if path is not None and benchmark.stats and request.node.stash.get(PASSED, False):
        with path.open("a", encoding="utf-8") as file:
            # A line of its own, also behind one that was cut off.
            file.write(f"\n{json.dumps(kept(benchmark))}\n")


def kept(benchmark: Any) -> dict[str, Any]:
    """A benchmark as pytest-benchmark's JSON has it, as far as Assay reads that."""
    return {
        "name": benchmark.name,
        "fullname": benchmark.fullname,
        "stats": {"data": list(benchmark.stats.stats.data)},
        "extra_info": dict(benchmark.extra_info),
    }


Race = Callable[..., Rounds]
"""``race(ours, count, others, ceilings, most, footprint, fresh)``: see `race`."""


@pytest.fixture
def race(
    pytestconfig: pytest.Config,
    benchmark: Any,
    report: Report,
    stopwatch: Stopwatch,
    device: torch.device,
) -> Race:
    """Time ``ours`` for a ``count`` of rounds, with the ``others`` in each.

    ``ceilings`` are measured in each round too, as bounds of the machine's speed at the time.
    Rounds are added, up to ``most``, until the mean is known to a hundredth (`Rounds.run`).  The
    device's cache is emptied before each call, unless its ``footprint`` in bytes is larger.
    A call that cannot be repeated at will is not brought to be ``warm`` first.
    ``fresh`` is called after the last round: it checks that answers to new inputs are right.
    """

    def run(
        ours: Callable[[], object],
        count: int,
        others: Mapping[str, Callable[[], object]] | None = None,
        ceilings: Mapping[str, Callable[[], float]] | None = None,
        most: int | None = None,
        footprint: float | None = None,
        fresh: Callable[[], object] | None = None,
        warm: bool = True,
    ) -> Rounds:
        beside = {name: stopwatch.timed(call) for name, call in (others or {}).items()}
        beside |= ceilings or {}
        rounds = Rounds(ours, beside, stopwatch, vitals.monitor(device))
        rounds.flush = limits.flush(device, footprint)
        rehearsed = pytestconfig.option.rehearse
        most = MOST * count if most is None else most
        rounds.run(benchmark, count, 0 if rehearsed else most, warm and not rehearsed)
        report.doubt(rounds)
        if fresh is not None:
            fresh()
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
