"""A toy of a run of claims, for tests of sweeps: without torch it costs a second and not ten.

It takes the options that a cell is given, records as a run does, and does what its model's name
says: ``good``, ``broken`` (a claim is refuted), ``refused`` (bad input), ``killed`` (always),
``killed-once``, ``waits`` (as long as there is a file of that name), ``g*`` (a pattern, which only
``good`` fits).
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import harness
from assay.harness.plugin import selection
from assay.harness.results.evidence import Evidence, resume_key
from assay.harness.results.records import RunRecord, SubjectRecord
from assay.harness.results.verdicts import Kind, Result, Verdict

CLAIMS = """
def test_one(claim): claim("one")
def test_two(claim): claim("two")
def test_three(claim): claim("three")
"""

OPTIONS = ("model", "dtype", "device", "profile", "seed", "evidence", "expectations")


def pytest_addoption(parser: pytest.Parser) -> None:
    for name in (*OPTIONS, "attention", "device-map"):
        parser.addoption(f"--{name}")
    parser.addoption("--resume", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    option = config.option
    if option.model == "refused":
        raise pytest.UsageError("refused: is no model")
    folder = Path(option.model)
    digest = (folder / "digest").read_text() if folder.is_dir() else "0" * 64
    fields = {
        "id": uuid.uuid4().hex,
        "started": str(time.time()),
        "finished": None,
        "exit": None,
        "suite": harness.__version__,
        "profile": option.profile,
        "seed": int(option.seed),
        "device": option.device,
        "dtype": option.dtype,
        "attention": option.attention,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("torch", "transformers")},
        },
        "subjects": {_subject(option.model): SubjectRecord(digest=digest)},
        "selection": selection.chosen(config, [option.model]),
    }
    config.run = RunRecord(**fields)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def evidence(request: pytest.FixtureRequest) -> Any:
    option, config = request.config.option, request.config
    with Evidence.open(option.evidence) as store:
        known = store.unfinished(resume_key(config.run)) if option.resume else None
        if known is not None:
            config.run.id = known
        store.begin(config.run)
        yield store
        store.finish(config.run.id, 1 if request.session.testsfailed else 0)


@pytest.fixture
def claim(
    request: pytest.FixtureRequest, evidence: Evidence, record_property: Callable[..., None]
) -> Callable[[str], None]:
    option, run = request.config.option, request.config.run

    def settle(name: str) -> None:
        if name in [result.name for result in evidence.results(run.id)]:
            return
        with Path("ran").open("a") as file:
            file.write(f"{option.model}:{option.dtype}:{name}\n")
        if name == "two":
            _do(option.model)
        refuted = option.model == "broken" and name == "two"
        verdict = Verdict.REFUTED if refuted else Verdict.UPHELD
        subject = _subject(option.model)
        result = Result("T1", name, Kind.LAW, subject, verdict)
        evidence.record(run.id, result, run.subjects[subject].digest)
        record_property("claim", "T1")
        record_property("verdict", verdict.value)
        if refuted:
            pytest.fail("T1 is refuted")

    return settle


def _subject(model: str) -> str:
    return "good" if model == "g*" else model


def _do(model: str) -> None:
    if model == "killed" or (model == "killed-once" and not Path("killed-once").exists()):
        Path(model).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while model == "waits" and Path("waits").exists():
        time.sleep(0.01)
