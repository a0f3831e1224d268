"""Runs that were cut short: nothing that was recorded is lost or done again."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from assay.harness.results.evidence import Evidence
from assay.harness.results.schema import Report
from assay.harness.tests.support import folders
from assay.harness.tests.support.claims_text import LAWS
from assay.harness.tests.support.sessions import Project, law


@pytest.fixture
def waiting(project: Project) -> Project:
    """A project whose third law waits as long as there is a file of this name."""
    project.claims(*LAWS)
    project.write("wait", "")
    return project


def cut_short(project: Project, blow: signal.Signals, *arguments: str) -> tuple[int, str]:
    """Begin a run, end it by a signal in its third law; its exit code and the run's id."""
    process = project.start(*arguments)
    project.wait_until(lambda: "3" in project.ran)
    os.kill(process.pid, blow)
    ended = project.ended(process)
    (project.folder / "wait").unlink()
    project.forget_ran()
    with Evidence.open(project.folder / "evidence.sqlite") as evidence:
        (run,) = evidence.runs()
        assert run.finished is None
        assert [result.name for result in evidence.results(run.id)] == ["law 1", "law 2"]
    return ended.exit, run.id


TELLING = """
import assay.harness.plugin.recording
from assay.harness.results.evidence import Evidence
from assay.harness.report.progress import Progress

def noted(function, what):
    def note(self, *arguments):
        with open("order", "a") as file:
            file.write(what + " ")
        return function(self, *arguments)
    return note

Evidence.record = noted(Evidence.record, "stored")
Progress.update = noted(Progress.update, "told")
"""


def test_a_result_is_stored_before_it_is_shown(project: Project) -> None:
    project.claims(law(1), law(2))
    (project.folder / "conftest.py").open("a").write(TELLING)
    assert project.run().exit == 0
    assert (project.folder / "order").read_text().split() == ["stored", "told"] * 2


def test_a_killed_run_goes_on_where_it_stopped(waiting: Project) -> None:
    code, first = cut_short(waiting, signal.SIGKILL, "-m", "law")
    assert code == -signal.SIGKILL
    run = waiting.run("--resume", "--json=out.json")
    assert run.exit == 1
    assert "resuming the run of" in run.output
    assert "2 claims are recorded" in run.output
    assert waiting.ran == ["3", "4"]
    written = waiting.json()
    assert written["run"]["id"] == first
    assert written["run"]["selection"]["marker"] == ""  # as the second command asked for
    assert [claim["name"] for claim in written["claims"]] == [f"law {n}" for n in (1, 2, 3, 4)]
    example = written["claims"][1]["counterexample"]
    assert example["inputs"] == {"a number": "2.0"}
    assert example["replay"] in run.output


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupt_ends_with_pytests_own_code_and_all_that_was_found(
    waiting: Project, blow: signal.Signals
) -> None:
    code, _ = cut_short(waiting, blow, "--json=out.json", "--report=page.html")
    assert code == pytest.ExitCode.INTERRUPTED
    assert waiting.verdicts() == {"law 1": "upheld", "law 2": "refuted"}
    msgspec.convert(waiting.json(), Report)
    assert waiting.json()["run"]["finished"] is None
    assert "it shows the results so far" in (waiting.folder / "page.html").read_text()
    shown = {signal.SIGINT: "! KeyboardInterrupt !", signal.SIGTERM: ".Terminated !"}
    assert shown[blow] in waiting.output.read_text()
    assert (
        "stopped: 2 of 4 claims have no verdict; --resume continues" in waiting.output.read_text()
    )


TWICE = law(
    2,
    body="""with tempfile.TemporaryDirectory(dir="."):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)""",
)


def test_a_run_that_is_terminated_twice_removes_its_temporary_files(project: Project) -> None:
    project.claims("import tempfile\n\n", law(1), TWICE, law(3))
    run = project.run("--json=out.json")
    assert run.exit == pytest.ExitCode.INTERRUPTED
    assert project.ran == ["1", "2"]
    assert [p.name for p in project.folder.iterdir() if p.name.startswith("tmp")] == []
    assert list(project.verdicts()) == ["law 1"]


ONCE = "Path('once').exists() or (Path('once').touch(), os.kill(os.getpid(), signal.SIGINT))"

AGAIN = """
import os, signal, time

def pytest_sessionfinish():
    time.sleep({seconds})
    os.kill(os.getpid(), signal.{blow})
"""


def test_a_signal_after_the_last_claim_changes_nothing(project: Project) -> None:
    project.claims(law(1), law(2))
    (project.folder / "conftest.py").open("a").write(AGAIN.format(seconds=0, blow="SIGTERM"))
    run = project.run("--json=out.json")
    assert run.exit == 0
    assert "Traceback" not in run.output
    assert project.json()["run"]["exit"] == 0
    assert "2 upheld" in run.output


def test_what_was_recorded_is_counted_when_a_resumed_run_is_interrupted(project: Project) -> None:
    """Nor is it recorded again, as of another time."""
    laws = [law(1), law(2), law(3), law(4, body=ONCE)]
    project.claims(*laws)
    assert project.run("--json=out.json").exit == pytest.ExitCode.INTERRUPTED
    before = project.json()
    times = recorded(project)
    (project.folder / "conftest.py").open("a").write(SOON)
    run = project.run("--json=out.json", "--resume")
    assert run.exit == pytest.ExitCode.INTERRUPTED
    assert "stopped: 1 of 4 claims have no verdict" in run.output
    assert len(project.json()["claims"]) == len(before["claims"]) == 3
    assert recorded(project) == times


SOON = """
import os, signal

def pytest_runtest_logfinish():
    os.kill(os.getpid(), signal.SIGINT)
"""


def recorded(project: Project) -> list[tuple[str, str]]:
    """When each of the three first laws was recorded."""
    with closing(sqlite3.connect(project.folder / "evidence.sqlite")) as db:
        return db.execute("SELECT name, recorded FROM claims ORDER BY name LIMIT 3").fetchall()


def test_ctrl_c_long_after_another_signal_ends_a_run_at_once(project: Project) -> None:
    project.claims(law(1), law(2, body=ONCE), law(3))
    (project.folder / "conftest.py").open("a").write(AGAIN.format(seconds=1.1, blow="SIGINT"))
    run = project.run()
    assert run.exit == pytest.ExitCode.INTERRUPTED
    assert "Traceback" not in run.output
    assert "interrupted again: ended without a summary" in run.output


LOST = law(
    2,
    body="""import gc
    def interrupts(phase, _):
        gc.callbacks.remove(interrupts)
        os.kill(os.getpid(), signal.SIGINT)
    gc.callbacks.append(interrupts)
    gc.collect()""",
)

CAUGHT = law(
    2,
    body="""try:
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException as error:
        raise ModuleNotFoundError("as transformers does") from error""",
)


@pytest.mark.parametrize("lost", [LOST, CAUGHT], ids=["by Python", "by a library"])
def test_a_claim_whose_interrupt_is_lost_has_no_result(project: Project, lost: str) -> None:
    """Python ignores exceptions in callbacks of its garbage collector; Hypothesis has one."""
    project.claims(law(1), lost, law(3), law(4))
    run = project.run("--json=out.json")
    assert run.exit == pytest.ExitCode.INTERRUPTED
    assert project.ran == ["1", "2"]
    assert list(project.verdicts()) == ["law 1"]


INTERRUPTED = """
import os, signal
from assay.harness.results.evidence import Evidence

record = Evidence.record

def interrupted(self, run, result, digest):
    if result.name == "law 2":
        os.kill(os.getpid(), signal.SIGINT)
    record(self, run, result, digest)

Evidence.record = interrupted
"""


def test_what_an_interrupt_keeps_from_the_evidence_is_not_reported(project: Project) -> None:
    project.claims(law(1), law(2), law(3))
    (project.folder / "conftest.py").open("a").write(INTERRUPTED)
    run = project.run("--json=out.json")
    assert run.exit == pytest.ExitCode.INTERRUPTED
    assert "1 upheld" in run.output
    assert list(project.verdicts()) == ["law 1"]


def test_only_a_run_like_this_is_resumed_and_only_on_the_same_weights(
    project: Project, tmp_path: Path
) -> None:
    project.claims(*LAWS)
    folders.tiny("gpt2").save_pretrained(tmp_path / "saved")
    model = f"--model={tmp_path / 'saved'}"
    assert project.run(model, "-x", "--json=out.json").exit == 1
    first = project.json()["run"]["id"]
    project.forget_ran()
    assert "nothing to resume" in project.run(model, "--resume", "--seed=1").output
    folders.edit_weights(tmp_path / "saved", lambda held: min(held.items())[1].add_(1.0))
    project.forget_ran()
    run = project.run(model, "--resume", "--json=out.json")
    assert "resuming" in run.output
    assert project.json()["run"]["id"] == first
    assert set(project.ran) == {"1", "2", "3", "4"}
