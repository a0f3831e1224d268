"""Time and memory of whole runs of claims, each in processes of its own, from start to summary."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from assay.fixtures import geometries
from assay.harness.plugin.request import RunRequest

ROOT = Path(__file__).parents[1]
GIGABYTE = 1e9

LOOK = 1.0
"""Seconds between two looks at the memory: one reads the tables of all pages, which takes time."""


@dataclass(frozen=True)
class Run:
    """A run of claims, with its goals: seconds, and gigabytes resident.

    In ``processes`` of pytest-xdist, among which the threads are divided.  ``core_seconds`` are
    those of user and system time of all processes.
    """

    model: str
    arguments: tuple[str, ...]
    seconds: float | None = None
    peak: float | None = None
    processes: int = 2
    core_seconds: float | None = None

    @property
    def name(self) -> str:
        """The run in words."""
        glance = ", glance" if "--profile=glance" in self.arguments else ""
        return f"{self.model}, {'laws' if 'law' in self.arguments else 'all claims'}{glance}"


MOST_PASSES, FIRST = 250, 30
"""Goals of a large model: passes for all laws, and seconds until the first verdict."""

LAWS = ("-m", "law", "--profile=glance")
"""The options of `assay check FOLDER -m law`."""

MODELS = ("tiny:llama",)
"""The models of `test_laws_at_a_glance`, unless ``--model`` names others."""

PASS = 128
"""Tokens of the pass that is the unit of time."""

RUNS = [
    Run("tiny:llama", LAWS, processes=1, core_seconds=20),
    Run("tiny:llama", ("-m", "law"), 12, 1.0, 1),
    Run("tiny:llama", (), 20, 1.0),
    Run("reference", ("-m", "law"), 40, 1.3),
    Run("reference", (), 240, 1.3),
    Run("geometry:bert-6x384", ("-m", "law"), 90, 1.5),
    Run("geometry:bert-6x384", (), 360, 1.5),
    Run("geometry:gpt2", ("-m", "law"), 180, 2.2),
    Run("geometry:gpt2", (), 720, 2.2),
    Run("geometry:rotary-1b", ("-m", "law", "--dtype=bfloat16", "--budget=20m"), 1200, 5.5, 1),
]

SIZES = ("rotary-small", "bert-6x384", "gpt2", "gpt2-medium", "rotary-1b")
"""Geometries of 6, 23, 124, 355 and 1100 million parameters."""

FEW = ("--claim=C1", "--claim=C2:[default]", "--claim=C5", "--claim=C6")
"""Laws that apply to most models, for the growth of time with parameters."""


@dataclass(frozen=True)
class Measured:
    """What a run took: seconds, also until its first verdict and of all cores; bytes resident at
    the peak, and its claims as JSON.
    """

    seconds: float
    first: float
    core_seconds: float
    peak: int
    claims: list[dict]

    @property
    def laws(self) -> list[dict]:
        """The laws that applied."""
        return [e for e in self.claims if e["kind"] == "law" and e["verdict"] != "not applicable"]

    @property
    def undecided(self) -> list[str]:
        """The laws that ended without a verdict, each with the reason."""
        open_ones = [each for each in self.laws if each["verdict"] == "inconclusive"]
        return [f"{each['id']} {each['name']}: {each['reason']}" for each in open_ones]

    @property
    def passes_of_laws(self) -> float:
        """Seconds of the laws inside of the model's passes, of all processes."""
        return _in_passes(self.laws)

    @property
    def passes(self) -> float:
        """Seconds of all claims inside of models' passes and steps of descents."""
        return _in_passes(self.claims)

    @property
    def seconds_of_laws(self) -> float:
        """Seconds of the laws, of all processes."""
        return sum(each["seconds"] for each in self.laws)

    @property
    def inside(self) -> float:
        """The share of the laws' time inside of the model's passes."""
        return self.passes_of_laws / self.seconds_of_laws

    @property
    def shared(self) -> float:
        """The share of the laws' tokens whose passes were looked up."""
        details = [each["details"] for each in self.laws if "passes and tokens" in each["details"]]
        ran = sum(tokens for each in details for _, tokens in each["passes and tokens"].values())
        spared = sum(each["passes and tokens shared"][1] for each in details)
        return spared / (ran + spared)


def _in_passes(claims: Sequence[dict]) -> float:
    return sum(each["details"].get("seconds in forward passes", 0.0) for each in claims)


def measured(run: Run, folder: Path, threads: int) -> Measured:
    """Run it, and look at its memory meanwhile."""
    report = folder / "claims.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), "claims"]
    command += [f"--model={run.model}", f"--json={report}", f"--evidence={folder / 'evidence'}"]
    command += run.arguments
    if run.processes > 1:
        command += ["-n", str(run.processes), "--dist", "loadfile"]
    environment = os.environ | {"OMP_NUM_THREADS": str(max(1, threads // run.processes))}
    cores, started = _core_seconds(), time.time()
    began, peak = time.perf_counter(), 0
    with (folder / "output").open("w") as output:
        process = psutil.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        while process.poll() is None:
            peak = max(peak, resident(process))
            time.sleep(LOOK)
    seconds = time.perf_counter() - began
    assert process.returncode in (0, 1), (folder / "output").read_text()[-2000:]
    claims = json.loads(report.read_text())["claims"]
    with sqlite3.connect(folder / "evidence") as evidence:
        [(first,)] = evidence.execute("SELECT min(recorded) FROM claims")
    until_first = datetime.fromisoformat(first).timestamp() - started
    return Measured(seconds, until_first, _core_seconds() - cores, peak, claims)


def _core_seconds() -> float:
    """Seconds of user and system time of all processes that this one started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def resident(process: psutil.Process) -> int:
    """Bytes of a process and its children that are in memory, what they share counted once."""
    total = 0
    for each in [process, *children(process)]:
        try:
            memory = each.memory_full_info()
            total += getattr(memory, "pss", memory.rss)  # Linux alone knows the shares
        except psutil.Error:  # it has ended
            continue
    return total


def children(process: psutil.Process) -> Sequence[psutil.Process]:
    """The processes that it started."""
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_run(benchmark, report, pytestconfig, tmp_path, run):
    threads = pytestconfig.option.threads
    result = benchmark.pedantic(lambda: measured(run, tmp_path, threads), rounds=1, iterations=1)
    assert result.laws, "no law was looked at"
    report.figure(run.name, "seconds", np.array([result.seconds]), run.seconds, at_most=True)
    cores = np.array([result.core_seconds])
    report.figure(run.name, "core-seconds", cores, run.core_seconds, at_most=True)
    peak = np.array([result.peak / GIGABYTE])
    report.figure(run.name, "GB resident", peak, run.peak, at_most=True)
    for what, seconds in (
        ("laws", result.seconds_of_laws),
        ("passes of laws", result.passes_of_laws),
        ("passes and steps of all claims", result.passes),
    ):
        report.figure(
            run.name, f"seconds of {what}, a process", np.array([seconds / run.processes])
        )
    report.figure(run.name, "share of the laws' time in passes", np.array([result.inside]))
    report.figure(run.name, "share of the laws' tokens looked up", np.array([result.shared]))
    examples = sorted(each["examples"] for each in result.laws)
    verdicts = [each["verdict"] for each in result.claims]
    dearest = sorted(result.claims, key=lambda each: -each["seconds"])[:12]
    dear = [(each["id"], each["name"], each["verdict"], each["seconds"]) for each in dearest]
    report.also(laws=len(result.laws), examples=examples, verdicts=verdicts, dearest=dear)


def test_laws_at_a_glance(benchmark, report, pytestconfig, tmp_path, stopwatch, model):
    """All laws, in seconds and in passes of 128 tokens through the whole model."""
    ids = model.content(torch.arange(PASS, device=model.device)[None])
    pass_seconds = stopwatch.timed(lambda: model(ids, states=False))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    unit = min(pass_seconds() for _ in range(5))
    torch.set_num_threads(threads)
    float32 = 4e-9 * sum(each.numel() for each in model.model.parameters())
    run = Run(model.name, LAWS)
    result = benchmark.pedantic(lambda: measured(run, tmp_path, threads), rounds=1, iterations=1)
    report.figure(run.name, "seconds of a pass of 128 tokens", np.array([unit]))
    for what, number, goal in (
        ("seconds", result.seconds, None),
        ("passes in that time", result.seconds / unit, MOST_PASSES),
        ("seconds until the first verdict", result.first, FIRST),
        ("core-seconds", result.core_seconds, None),
        ("laws without a verdict", len(result.undecided), 0),
        ("GB resident at the peak", result.peak / GIGABYTE, 2 * float32 + 1),
    ):
        report.figure(run.name, what, np.array([number]), goal, at_most=True)
    verdicts = Counter(each["verdict"] for each in result.claims)
    by_id: Counter[str] = Counter()
    for law in result.laws:
        by_id[law["id"]] += law["seconds"]
    report.also(verdicts=verdicts, undecided=result.undecided, seconds_by_law=by_id.most_common())


def test_growth(benchmark, report, pytestconfig, tmp_path):
    """The exponent that the laws' time grows with over the parameters."""
    threads = pytestconfig.option.threads
    loading = RunRequest.of(pytestconfig).loading

    def seconds(name):
        options = (*FEW, f"--dtype={loading.dtype}", "--layers=all")
        run = Run(f"geometry:{name}", options, processes=1)
        laws = measured(run, tmp_path, threads).laws
        return float(np.mean([law["seconds"] for law in laws]))

    def all_sizes():
        return [seconds(name) for name in SIZES]

    took = benchmark.pedantic(all_sizes, rounds=1, iterations=1)
    sizes = [geometries.size(name, torch.uint8) for name in SIZES]  # a byte for each parameter
    exponent = np.polyfit(np.log(sizes), np.log(took), 1)[0]
    report.figure("laws by parameters", "exponent", np.array([exponent]), 1, at_most=True)
    report.also(parameters=sizes, seconds=took)
