"""The memory that a descent of many prompts takes, libraries and model included."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
MODELS = ["reference"]
ROWS = 64


def test_memory(benchmark, report, pytestconfig, model):
    if model.device.type != "cpu":
        pytest.skip("the memory of a card is another matter")
    threads = pytestconfig.option.threads
    command = [sys.executable, "-m", "benchmarks.peak", model.name]
    command += [f"--rows={ROWS}", f"--threads={threads}"]

    def descend():
        run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        return json.loads(run.stdout.splitlines()[-1])

    found = benchmark.pedantic(descend, rounds=1, iterations=1)
    first, last = found["losses"]
    assert last < first, "nothing was descended"
    name = f"memory, descent of {ROWS} prompts"
    peak = np.array([found["peak"] / 2**30])
    report.figure(name, "GiB resident", peak, 2, at_most=True)
    report.also(before_the_descent=found["before"], peak=found["peak"])
