"""The pytest plug-in: runs claims on subjects, hands every result on, and sums up.

Claims run where pytest runs them, in worker processes too; a finished claim's result travels in
its report to the process that owns the terminal, which alone writes evidence and pages
(`harness.recording`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness import expectations, options
from harness.errors import BadInput
from harness.expectations import Expectations
from harness.laws import Claim, Session
from harness.profiles import PROFILES
from harness.recording import RECORDER, Recorder
from harness.runs import describe_subject
from harness.subject import Subject
from harness.verdicts import Result, Verdict

RESULT, SUBJECT, STATUS = "assay-result", "assay-subject", "assay-status"
"""Names of the properties under which a report carries a result and what belongs to it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Assay's own options."""
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Start recording in the process that owns the terminal; refuse bad options at once."""
    try:
        # Claims say what they expect beside the claims themselves.
        config.stash[EXPECTED] = expectations.load(config.rootpath / "claims" / "expectations")
        if not hasattr(config, "workerinput"):
            config.stash[RECORDER] = Recorder(config)
            config.pluginmanager.register(config.stash[RECORDER], "assay-recorder")
    except BadInput as error:
        raise pytest.UsageError(str(error)) from error
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)  # workers share the cores among themselves


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that takes a ``subject`` on every model asked for."""
    if "subject" in metafunc.fixturenames:
        specs = options.models(metafunc.config)
        metafunc.parametrize("subject", specs, indirect=True, scope="session", ids=specs)


@pytest.fixture
def assay(request: pytest.FixtureRequest) -> Assay:
    """What a claim's test hands its verdict to."""
    return Assay(request)


class Assay:
    """Settles one claim on one subject: run or resume it, hold it against what is expected."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.config, self.node = request.config, request.node

    @property
    def session(self) -> Session:
        """What the options say about laws."""
        option = self.config.option
        return Session(
            PROFILES[option.profile],
            seed=option.seed,
            replay=option.replay,
            derandomize=bool(os.environ.get("CI")),
        )

    def settle(self, claim: Claim, subject: Subject, run: Callable[[Session], Result]) -> None:
        """Run the claim, attach its result to the report, and pass, fail or skip by it."""
        __tracebackhide__ = True
        properties = self.node.user_properties
        properties.append((SUBJECT, (subject.name, self._description(subject))))
        result = self._resumed(claim, subject) or self._finished(run(self.session))
        judgement = expectations.judge(result, self._expected(result))
        properties.append((RESULT, result.as_json()))
        properties.append((STATUS, (judgement.status, judgement.message)))
        if result.verdict is Verdict.NOT_APPLICABLE and judgement.ok:
            pytest.skip(f"missing capability: {result.reason}")
        if not judgement.ok:
            pytest.fail(judgement.message, pytrace=False)

    def _finished(self, result: Result) -> Result:
        from dataclasses import replace

        variant = self._variant(result.subject)
        result = replace(result, name=f"{result.name} [{variant}]" if variant else result.name)
        if result.counterexample and (blob := result.counterexample.pop("blob", None)):
            command = options.replay_command(self.node.nodeid, self.config, result.subject, blob)
            result.counterexample["replay"] = command
        return result

    def _variant(self, subject: str) -> str:
        """The test's own parameters, without the subject."""
        callspec = getattr(self.node, "callspec", None)
        ids = [] if callspec is None else list(callspec._idlist)
        return "-".join(str(i) for i in ids if i != subject)

    def _resumed(self, claim: Claim, subject: Subject) -> Result | None:
        done = self.config.stash.get(DONE, None)
        if done is None:
            done = self.config.stash[DONE] = _recorded(self.config)
        variant = self._variant(subject.name)
        name = f"{claim.says} [{variant}]" if variant else claim.says
        return done.get((name, subject.name, subject.digest))

    def _expected(self, result: Result) -> expectations.Expected | None:
        mine = self.config.stash[EXPECTED].get(result.subject)
        return mine.expected(result.id, result.name) if mine else None

    def _description(self, subject: Subject) -> dict[str, Any]:
        known = self.config.stash.setdefault(DESCRIBED, {})
        if subject.name not in known:
            known[subject.name] = describe_subject(subject)
        return known[subject.name]


def _recorded(config: pytest.Config) -> dict[tuple[str, str, str], Result]:
    """What an unfinished run like this one has recorded already; nothing unless resuming."""
    recorder = config.stash.get(RECORDER, None)
    if recorder is not None:
        return recorder.resumed
    rows = config.workerinput.get("assay-resumed", [])  # type: ignore[attr-defined]
    return {(r["name"], r["subject"], digest): Result.from_json(r) for r, digest in rows}


EXPECTED = pytest.StashKey[dict[str, Expectations]]()
DONE = pytest.StashKey[dict[tuple[str, str, str], Result]]()
DESCRIBED = pytest.StashKey[dict[str, dict[str, Any]]]()


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Claims are counted by their verdicts, not as passed and failed tests."""
    found = dict(report.user_properties)
    if RESULT not in found or report.when != "call":
        return None
    verdict = found[RESULT]["verdict"]
    if found[STATUS][0] == "as expected" and verdict == Verdict.REFUTED:
        verdict = "refuted as expected"
    return verdict, "", ""
