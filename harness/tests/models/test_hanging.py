"""Models whose passes are too slow, and processes in which none ends any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.harness.models.capabilities import probe, recorded
from assay.harness.models.subject.clock import Braked, ForwardClock
from assay.harness.tests.support.sessions import PACKAGE
from assay.harness.tests.support.toys import Time, fresh, prompt

PROGRAM = """
import sys, time
from assay.harness.models.machine import hanging
hanging.OFTEN = 0.1
with hanging.ended_after(2.0, 2):
    for _ in range(12):
        hanging.progress()
        time.sleep(0.25)
    print("alive", flush=True)
    time.sleep({seconds})
time.sleep(2.5)
print("left in peace", flush=True)
"""


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_process_without_progress_ends_and_another_does_not(
    seconds: int, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(seconds=seconds)],
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = ["alive"] if seconds else ["alive", "left in peace"]
    assert (done.stdout.split("\n")[:-1], done.returncode) == (said, int(bool(seconds)))
    assert ("Timeout (0:00:02)!" in done.stderr) == bool(seconds)


def test_after_a_pass_that_is_too_slow_no_other_capability_is_probed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed, passes = Time(), [0]
    monkeypatch.setattr("assay.harness.models.subject.clock.perf_counter", passed)
    subject = fresh("gpt2")

    def slow(*_: object) -> None:
        passes[0] += 1
        passed.sleep(0.4 if passes[0] < 5 else 1.5)

    subject.blocks[0].register_forward_pre_hook(slow)
    with ForwardClock(1.0, each=True).watching(subject):
        for _ in range(4):
            subject.rows(prompt(subject, 3))  # four seconds in all, and none too slow
    reasons = recorded.reasons(subject, brake=1.0)
    missed = {why for why in reasons.values() if why and why.startswith("not found out")}
    assert missed == {"not found out: stopped after 1.5 s"}
    assert passes[0] == 5
    with pytest.raises(Braked):
        next(probe(subject).why_missing_within(1.0, name) for name in reasons)
