"""Runs in which a claim never ends by itself: it is ended, or the process is, in order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from assay.harness.results.evidence import Evidence
from assay.harness.tests.support.sessions import PACKAGE, PATIENCE, Project, law

IMPATIENT = """\
import math
from dataclasses import replace
from assay.harness.checking.profiles import PROFILES
from assay.harness.plugin import watchdog

pytest_plugins = ["assay.harness.plugin.hooks", "assay.fixtures.subjects"]

def pytest_runtest_setup(item):
    hangs = "law_2" in item.name
    PROFILES["quick"] = replace(PROFILES["quick"], brake={brake} if hangs else 3600.0)
    watchdog.SPARE = {spare} if hangs else 3600.0
    watchdog.PATIENCE = {patience}
"""
"""Has no patience with the second law, whose model hangs."""

ASLEEP = "subject.blocks[0].register_forward_pre_hook(lambda *_: time.sleep(1e6)); "
ASLEEP += "subject.rows(subject.content(torch.arange(3)[None]))"
DEAF = "signal.signal(signal.SIGALRM, signal.SIG_IGN); time.sleep(1e6)"
AT_WORK = pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "in a worker"])


@AT_WORK
def test_a_claim_whose_model_hangs_is_undecided_and_the_others_run(project, workers):
    project.write("conftest.py", IMPATIENT.format(brake=0.2, spare=3600.0, patience=5))
    # The hook in the model stays, so that the law comes last.
    project.claims(law(1), law(3), law(2, body=ASLEEP))
    run = project.run(*workers, "--json=out.json")
    assert run.exit == 1
    assert project.verdicts() == {"law 1": "upheld", "law 3": "upheld", "law 2": "inconclusive"}
    (hung,) = [claim for claim in project.json()["claims"] if claim["name"] == "law 2"]
    assert hung["reason"].startswith("stopped after")


def impatient(project: Project) -> None:
    """Claims of which the second cannot be ended, and a process that ends by it soon."""
    project.write("conftest.py", IMPATIENT.format(brake=3600.0, spare=0.5, patience=-1))
    project.claims(law(1), law(2, body=DEAF), law(3))


def test_a_claim_that_cannot_be_ended_ends_the_run_in_order(project):
    impatient(project)
    run = project.run()
    assert run.exit == 2
    hangs, undone = run.errors
    assert "test_law_2[tiny:gpt2] hangs" in hangs
    assert undone == "ERROR: without a verdict: test_law_2[tiny:gpt2], test_law_3[tiny:gpt2]"
    assert "Traceback" not in run.output
    with Evidence.open(project.folder / "evidence.sqlite") as evidence:
        (stored,) = evidence.runs()
        assert [name for name, *_ in evidence.recorded(stored.id)] == ["law 1"]
    project.forget_ran()
    (line,) = [each for each in run.output.splitlines() if each.startswith("--resume continues")]
    name = line.split("'")[1]
    assert project.run("--resume", "--deselect", name, "--json=out.json").exit == 0
    assert (set(project.ran), set(project.verdicts())) == ({"3"}, {"law 1", "law 3"})


def test_a_worker_whose_claim_cannot_be_ended_is_replaced(project):
    impatient(project)
    run = project.run("-n", "1", "--json=out.json")
    assert run.exit == 1
    assert project.verdicts() == {"law 1": "upheld", "law 3": "upheld"}
    assert "ERROR: without a verdict: 1 of 3 claims" in run.errors


LEFT_BEHIND = {
    "a thread": "threading.Thread(target=threading.Event().wait).start()",
    "a function of atexit": "atexit.register(threading.Event().wait)",
}


@pytest.mark.parametrize("left", LEFT_BEHIND.values(), ids=[*LEFT_BEHIND])
def test_a_process_that_has_done_its_work_ends_whatever_a_model_leaves_behind(
    tmp_path: Path, left: str
) -> None:
    program = f"""
        import atexit, sys, threading
        from assay.harness.plugin import watchdog
        watchdog.GRACE = 0.5
        {left}
        watchdog.Leaving().pytest_sessionfinish(3)
        sys.exit(3)
    """
    ended = subprocess.run(
        [sys.executable, "-c", dedent(program)],
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 3
    assert "code of a model kept the process from ending" in ended.stderr
