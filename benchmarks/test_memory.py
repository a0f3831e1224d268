"""The memory that a descent of many prompts takes, libraries and model included."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay.benchmarks import limits
from assay.benchmarks.descents import Case, fits, largest, ready
from assay.harness.models.machine import accelerators

ROOT = Path(__file__).parents[1]
MODELS = ["reference"]
ROWS = 64


def test_memory(benchmark, report, pytestconfig, model):
    if model.device.type != "cpu":
        pytest.skip("the memory of a GPU is another matter")
    threads = pytestconfig.option.threads
    command = [sys.executable, "-m", "assay.benchmarks.peak", model.name]
    command += [f"--rows={ROWS}", f"--threads={threads}"]

    def descend():
        run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        return json.loads(run.stdout.splitlines()[-1])

    result = benchmark.pedantic(descend, rounds=1, iterations=1)
    first, last = result["losses"]
    assert last < first, "nothing was descended"
    name = f"memory, descent of {ROWS} prompts"
    peak = np.array([result["peak"] / 2**30])
    report.figure(name, "GiB resident", peak, 2, at_most=True)
    report.also(before_the_descent=result["before"], peak=result["peak"])


def test_largest_batch(benchmark, report, model):
    """The most prompts of one pass, found by trying and without a crash."""
    if model.device.type == "cpu":
        pytest.skip("a processor's memory is everyone's: what fits is estimated and not tried")
    estimate = fits(model, Case())

    def run(rows):
        accelerators.release(model.device.type)
        with ready(model, replace(Case(), rows=rows)) as descent:  # one pass, never in parts
            descent.call()

    limits.forget_peak(model.device)
    most = benchmark.pedantic(lambda: largest(run, 16 * estimate), rounds=1, iterations=1)
    assert most >= 1
    report.figure(f"largest batch, {model.name}", "prompts", np.array([float(most)]))
    report.also(estimate=estimate, peak=limits.peak(model.device))
