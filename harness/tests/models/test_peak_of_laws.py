"""The memory that checking a large model takes, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from assay.harness.operations.variants import SHARD
from assay.harness.tests.support.sessions import PACKAGE

BESIDE = 0.1e9
"""Bytes of what else a process may come to hold: code that is loaded at its first use, and memory
that was released and that the allocator keeps.
"""


@pytest.mark.nightly
def test_the_reference_and_saving_of_a_large_model_take_less_than_a_copy() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("missing capability: the peak of a process in /proc")
    command = ["-m", "assay.harness.tests.support.peak_of_laws", "geometry:gpt2-medium"]
    run = subprocess.run(
        [sys.executable, "-P", *command],
        env={"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    measured = json.loads(run.stdout.splitlines()[-1])
    assert measured["weights"] > 700e6
    assert measured["off"] < 1
    assert measured["lost"] == 0
    assert measured["apart"] <= 0
    files = 2 * max(SHARD, measured["largest"])
    assert measured["peak"] <= files + BESIDE < measured["with_copy"]
