"""Runs in several processes (pytest-xdist): the same results, each once, by one writer."""

from __future__ import annotations

import shlex
from collections import Counter

import msgspec
import pytest
import torch

from assay.fixtures import subjects
from assay.harness.models.loading.runs import Options
from assay.harness.plugin.request import RunRequest
from assay.harness.results.evidence import Evidence
from assay.harness.results.schema import Report
from assay.harness.tests.support.claims_text import AHEAD, LAWS, numbers
from assay.harness.tests.support.sessions import Project, law

pytest.importorskip("xdist")

WHO_WRITES = """
import os
from assay.harness.results.evidence import Evidence

class Watched(Evidence):
    def record(self, *arguments):
        with open("writers", "a") as file:
            file.write(f"{os.getpid()} {os.environ.get('PYTEST_XDIST_WORKER')}\\n")
        super().record(*arguments)

import assay.harness.plugin.recording
assay.harness.plugin.recording.Evidence = Watched
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
    msgspec.convert(written, Report)
    assert written["run"]["id"] == first
    assert len({claim["name"] for claim in written["claims"]}) == len(written["claims"]) == 5
    writers = (project.folder / "writers").read_text().splitlines()
    assert len(writers) == 3, "what was recorded before is recorded again"
    assert len(set(writers)) == 1
    assert writers[0].endswith(" None")
    assert "[5/5]" in run.output
    caught(project, next(c for c in written["claims"] if c["id"] == "C1"))


def caught(project: Project, claim: dict) -> None:
    """The broken model was caught with two tokens, and the printed line replays it."""
    example = claim["counterexample"]
    assert claim["verdict"] == "refuted"
    assert len(example["inputs"]["prompt"].split()) == 2
    assert example["replay"] in project.output.read_text()
    again = project.run(*shlex.split(example["replay"])[1:], "--json=again.json")
    assert again.exit == 1
    assert numbers(project.json("again.json")["claims"][0]["counterexample"]) == numbers(example)


WHO_LOADS = """
import os
import assay.fixtures.subjects

plain = assay.fixtures.subjects.load

def load(spec, options):
    with open("loads", "a") as file:
        file.write(f"{os.environ.get('PYTEST_XDIST_WORKER')} {spec}\\n")
    return plain(spec, options)

assay.fixtures.subjects.load = load
"""
"""Added to a conftest: notes which processes load which models."""


GROUPED = "--dist=loadfile"


@pytest.mark.parametrize(
    ("processes", "loads"),
    [
        pytest.param(1, 2, id="by model", marks=pytest.mark.nightly),
        pytest.param(2, 4, id="by file"),
    ],
)
def test_processes_record_every_claim_once_and_load_a_model_once(
    project: Project, processes: int, loads: int
) -> None:
    models, files = ["tiny:gpt2", "tiny:llama"], 4
    for file in range(files):
        project.claims(law(2 * file), law(2 * file + 1), file=f"test_{file}")
    (project.folder / "conftest.py").open("a").write(WHO_WRITES + WHO_LOADS)
    more = [f"--model={model}" for model in models]
    assert project.run("-n", str(processes), GROUPED, *more).exit == 0
    expected = sorted((f"law {n}", model) for n in range(2 * files) for model in models)
    assert Counter(project.ran) == {str(n): len(models) for n in range(2 * files)}
    with Evidence.read(project.folder / "evidence.sqlite") as evidence:
        (run,) = evidence.runs()
        kept = sorted((result.name, result.subject) for result in evidence.results(run.id))
    assert kept == expected
    writers = (project.folder / "writers").read_text().splitlines()
    assert len(writers) == len(expected)
    assert set(writers) == {writers[0]}
    loaded = Counter((project.folder / "loads").read_text().splitlines())
    assert set(loaded.values()) == {1}
    assert len(loaded) <= loads


def test_a_worker_that_dies_takes_one_claim_with_it(project: Project) -> None:
    dies = "Path('died').exists() or (Path('died').touch(), os.kill(os.getpid(), signal.SIGKILL))"
    project.claims(law(1), law(2, body=dies), law(3))
    project.claims(law(4), law(5), file="test_a")
    run = project.run("-n", "2", GROUPED, "--json=out.json")
    assert run.exit == 1
    assert "crashed while running" in run.output
    assert project.verdicts() == {f"law {n}": "upheld" for n in (1, 3, 4, 5)}
    project.forget_ran()
    assert project.run("--resume", "--json=out.json").exit == 0
    assert project.ran == ["2"]
    assert len(project.verdicts()) == 5


def device_of(monkeypatch: pytest.MonkeyPatch, device: str, worker: str, cards: int) -> str:
    """The device that a worker loads models on, in a machine with so many cards."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cards > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    run_request = RunRequest(loading=Options(device=device), worker=worker)
    return subjects.loading_of(run_request).device


@pytest.mark.parametrize(("workers", "cards"), [(1, 2), (8, 3), (2, 8)])
def test_workers_are_dealt_the_cards_in_turn(
    monkeypatch: pytest.MonkeyPatch, cards: int, workers: int
) -> None:
    devices = Counter(device_of(monkeypatch, "cuda", f"gw{n}", cards) for n in range(workers))
    assert set(devices) == {f"cuda:{n}" for n in range(min(cards, workers))}
    assert max(devices.values()) - min(devices.values()) <= 1


@pytest.mark.parametrize(
    ("device", "worker", "cards"),
    [("cuda:2", "gw5", 4), ("cpu", "gw5", 4), ("cuda", "", 4), ("cuda", "gw5", 0)],
)
def test_a_device_that_was_named_or_is_the_only_one_is_kept(
    monkeypatch: pytest.MonkeyPatch, device: str, worker: str, cards: int
) -> None:
    assert device_of(monkeypatch, device, worker, cards) == device


AGAIN = """
import os, signal

def pytest_keyboard_interrupt():
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.kill(os.getpid(), signal.SIGINT)
"""
"""Added to a conftest: a worker is interrupted while its interrupted run ends."""


@pytest.mark.nightly
def test_a_worker_that_is_interrupted_twice_ends_as_one_that_is_interrupted(
    project: Project,
) -> None:
    project.claims(law(1), law(2, body="os.kill(os.getpid(), signal.SIGINT)"))
    (project.folder / "conftest.py").open("a").write(AGAIN)
    run = project.run("-n", "1", "--json=out.json")
    assert run.exit == pytest.ExitCode.INTERRUPTED
    assert "INTERNALERROR" not in run.output
    assert project.verdicts() == {"law 1": "upheld"}
