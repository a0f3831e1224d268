"""A failure: caught with the smallest input, and run again by the one line that it prints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from assay.harness.checking.entries import blob_of
from assay.harness.tests.support import sessions
from assay.harness.tests.support.claims_text import AHEAD, numbers
from assay.harness.tests.support.sessions import Project, law

FIRST = "first.txt"
"""What the run that found the model broken printed."""

ANOTHER = law(2, "0.0 if draw(st.text(min_size=5), 'word') else 1.0")


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project whose one run has found the model broken."""
    project = Project(tmp_path_factory.mktemp("broken") / "project")
    project.claims(AHEAD)
    run = project.run("--model=tiny:llama", "--json=out.json")
    project.write(FIRST, run.output)
    yield project
    project.close()


def replayed(project: Project, command: str, *more: str, **environment: str) -> Any:
    """Run a printed command in a forked process."""
    return project.run(*shlex.split(command)[1:], *more, **environment)


def test_a_model_that_sees_one_token_ahead_is_caught_by_two_tokens(broken: Project) -> None:
    assert broken.json()["run"]["exit"] == 1
    (claim,) = broken.json()["claims"]
    assert (claim["id"], claim["verdict"]) == ("C1", "refuted")
    example = claim["counterexample"]
    assert re.fullmatch(r"<\d+>\(\d+\) <\d+>\(\d+\)", example["inputs"]["prompt"])
    assert example["inputs"]["cut"] == "1"
    assert example["observed"] > 1000 * example["allowed"]
    output = (broken.folder / FIRST).read_text()
    for text in (example["inputs"]["prompt"], "observed", "allowed", example["where"]):
        assert text in output


def test_the_printed_line_runs_the_example_again(broken: Project) -> None:
    example = broken.json()["claims"][0]["counterexample"]
    output = (broken.folder / FIRST).read_text()
    (line,) = [line for line in output.splitlines() if line.startswith("pytest ")]
    assert line == example["replay"]
    run = replayed(broken, line, "--json=again.json")
    assert run.exit == 1
    assert line in run.output
    again = broken.json("again.json")["claims"][0]
    assert numbers(again["counterexample"]) == numbers(example)
    assert again["counterexample"]["inputs"] == example["inputs"]


def test_a_sound_model_passes_the_replay(broken: Project) -> None:
    line = broken.json()["claims"][0]["counterexample"]["replay"]
    more = ("--json=healthy.json", "--evidence=replay.sqlite")
    run = replayed(broken, line, *more, HEALTHY="1")
    assert run.exit == 0
    assert not (broken.folder / "replay.sqlite").exists()  # one example is no evidence
    (claim,) = broken.json("healthy.json")["claims"]
    assert (claim["verdict"], claim["examples"]) == ("upheld", 1)


def test_what_is_no_example_is_refused(project: Project) -> None:
    project.claims(ANOTHER)
    before = project.files()
    blobs = ("garbage!", "AXic", blob_of(b""), blob_of(b"garbage"))
    runs = project.runs(*([f"--replay={blob}", "--json=out.json"] for blob in blobs))
    for run in runs:
        assert run.refused("replay: this is not an example of X2, 'law 2'"), run.output
    assert project.files() - before <= {"ran"}


def test_the_line_has_all_that_the_run_was_asked_for(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "EMULATED", [])  # it would ask for more
    project.claims(law(1, "2.0"))
    folder = project.folder / "claims"
    settings = ["--dtype=float64", "--attention=eager", "--seed=7", "--model=tiny:gpt2:3"]
    options = [*settings, f"--rootdir={project.folder}", "--json=../out.json"]
    assert project.run(*options, folder=folder).exit == 1
    line = project.json()["claims"][0]["counterexample"]["replay"]
    assert shlex.split(line)[:-1] == [
        "pytest",
        "test_toys.py::test_law_1[tiny:gpt2:3]",
        "--model=tiny:gpt2:3",
        "--dtype=float64",
        "--attention=eager",
    ]
