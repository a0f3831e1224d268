"""Runs in several processes (pytest-xdist): the same results, each once, by one writer."""

from __future__ import annotations

import shlex
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from jsonschema import Draft202012Validator

from fixtures import subjects
from harness.evidence import Evidence
from harness.schema import SCHEMA
from harness.tests.sessions import Project, law
from harness.tests.test_run_replay import AHEAD, numbers
from harness.tests.test_run_resume import LAWS

pytest.importorskip("xdist")

WHO_WRITES = """
import os
from harness.evidence import Evidence

class Watched(Evidence):
    def record(self, *arguments):
        with open("writers", "a") as file:
            file.write(f"{os.getpid()} {os.environ.get('PYTEST_XDIST_WORKER')}\\n")
        super().record(*arguments)

import harness.recording
harness.recording.Evidence = Watched
"""
"""Added to a conftest: notes which processes write evidence."""


def test_a_run_in_two_processes_is_a_run(project: Project) -> None:
    project.claims(*LAWS)
    assert project.run("-x", "--json=out.json", "--model=tiny:llama").exit == 1
    first, recorded = project.json()["run"]["id"], project.verdicts()
    assert recorded == {"law 1": "upheld", "law 2": "refuted"}
    project.claims(AHEAD, file="test_z")
    (project.folder / "conftest.py").open("a").write(WHO_WRITES)
    project.forget_ran()
    run = project.run("-n", "2", "--resume", "--json=out.json", "--model=tiny:llama")
    assert run.exit == 1
    assert "resuming" in run.output
    assert sorted(project.ran) == ["3", "4"]
    written = project.json()
    Draft202012Validator(SCHEMA).validate(written)
    assert written["run"]["id"] == first
    names = Counter(claim["name"] for claim in written["claims"])
    assert len(names) == 5
    assert set(names.values()) == {1}
    writers = (project.folder / "writers").read_text().splitlines()
    assert len(writers) == 5
    assert len(set(writers)) == 1
    assert writers[0].endswith(" None")
    with Evidence.open(project.folder / "evidence.sqlite") as evidence:
        assert len(evidence.results(first)) == 5
    assert "[5/5]" in run.output
    caught(project, next(c for c in written["claims"] if c["id"] == "C1"))


def caught(project: Project, claim: dict) -> None:
    """The broken model was caught with two tokens, and the printed line replays it."""
    found = claim["counterexample"]
    assert claim["verdict"] == "refuted"
    assert len(found["inputs"]["prompt"].split()) == 2
    assert found["replay"] in project.output.read_text()
    again = project.run(*shlex.split(found["replay"])[1:], "--json=again.json")
    assert again.exit == 1
    assert numbers(project.json("again.json")["claims"][0]["counterexample"]) == numbers(found)


def test_what_a_worker_finds_wrong_is_one_line_too(project: Project) -> None:
    project.claims(law(1), law(2, body='raise BadInput("this model: will not do")'), law(3))
    run = project.run("-n", "1", "--json=out.json")
    assert run.refused("this model: will not do")
    assert project.verdicts() == {"law 1": "upheld"}
    with Evidence.open(project.folder / "evidence.sqlite") as evidence:
        (unfinished,) = evidence.runs()
        assert unfinished["finished"] is None


def test_a_worker_that_dies_takes_one_claim_with_it(project: Project) -> None:
    dies = "Path('died').exists() or (Path('died').touch(), os.kill(os.getpid(), signal.SIGKILL))"
    project.claims(law(1), law(2, body=dies), law(3))
    run = project.run("-n", "1", "--json=out.json")
    assert run.exit == 1
    assert "crashed while running" in run.output
    assert project.verdicts() == {"law 1": "upheld", "law 3": "upheld"}
    project.forget_ran()
    assert project.run("--resume", "--json=out.json").exit == 0
    assert project.ran == ["2"]
    assert len(project.verdicts()) == 3


@pytest.mark.parametrize(("asked", "given"), [("cuda", "cuda:1"), ("cuda:2", "cuda:2")])
def test_workers_are_dealt_the_cards_in_turn(
    monkeypatch: pytest.MonkeyPatch, asked: str, given: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    usual = {"dtype": "float32", "attention": None, "revision": None, "trust_remote_code": False}
    usual |= {"device_map": None}
    option = SimpleNamespace(device=asked, **usual)
    config = SimpleNamespace(option=option, stash=pytest.Stash(), workerinput={"workerid": "gw5"})
    subjects.pytest_configure(config)  # type: ignore[arg-type]
    assert config.stash[subjects.LOADER].options.device == given
