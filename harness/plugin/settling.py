"""Settles a claim: takes its result from a run or the evidence, and compares it with expectations.

Everything here happens in the process that runs the claim; the outcome travels on the test's
report (`Ruling`).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from assay.harness.checking import findings
from assay.harness.checking.absent import Absent
from assay.harness.checking.claim import Claim, Session
from assay.harness.checking.profiles import PROFILES
from assay.harness.models.loading.runs import describe_in_short, describe_subject
from assay.harness.models.machine.devices import dtype_name, parse_device, parse_dtype
from assay.harness.models.subject import Subject
from assay.harness.models.subject.clock import TOO_SLOW
from assay.harness.models.subject.offer import Offer
from assay.harness.plugin.budget import Budget
from assay.harness.plugin.request import RunRequest
from assay.harness.results import expectation_files, expectations
from assay.harness.results.encoding import decode
from assay.harness.results.errors import BadInput
from assay.harness.results.expectations import Expectations, Judgement
from assay.harness.results.records import SubjectRecord
from assay.harness.results.verdicts import (
    BUDGET,
    DECIDED_ON,
    LEFT_OUT,
    LIMIT,
    WHOLE,
    Result,
    Verdict,
)

Recorded = dict[tuple[str, str, str], Result]
"""Results by (claim's name, subject's name, subject's digest)."""

EXPECTED = pytest.StashKey[dict[str, Expectations]]()
"""The expectations by model."""

DONE = pytest.StashKey[Recorded]()
"""The results that the resumed run has recorded."""

DESCRIBED = pytest.StashKey[dict[str, SubjectRecord]]()
"""The descriptions of the subjects, in short until their last claim."""

LAST = pytest.StashKey[bool]()
"""Whether a test is the last one on its subject before this process goes on to another."""

BUDGETED = pytest.StashKey[Budget]()
"""The time of this process."""

STOPPED = pytest.StashKey[set[tuple[str, Path]]]()
"""(subject, file) of costly findings about large models that took too long."""

NOT_EXAMINED = "not examined: budget"
"""The reason of a claim that did not start since the budget was used up."""

RULING = pytest.StashKey["Ruling"]()
"""The outcome of a test."""

ATTRIBUTE = "assay"
"""The attribute of a report that has the outcome; text between processes, by `encoding`."""

RESUMED = "assay-resumed"
"""The key under which an xdist worker receives the recorded results."""


class Ruling(Struct, frozen=True):
    """How a claim was settled on a subject, as a test's report carries it."""

    result: Result
    subject: SubjectRecord
    judgement: Judgement

    @classmethod
    def on(cls, report: pytest.TestReport) -> Ruling | None:
        """The outcome that a report carries, if it is a claim's."""
        return getattr(report, ATTRIBUTE, None)


def expected_of_models(config: pytest.Config) -> dict[str, Expectations]:
    """The expectations by model, read once and only if claims are run; raises `BadInput`."""
    if EXPECTED not in config.stash:
        try:
            config.stash[EXPECTED] = expectation_files.load(RunRequest.of(config).expectations)
        except BadInput:
            # Entries that lack a reason are replaced when expectations are recorded.
            if not RunRequest.of(config).record_expectations:
                raise
            config.stash[EXPECTED] = {}
    return config.stash[EXPECTED]


def claim_of(item: pytest.Item) -> Claim | None:
    """The claim that a test checks, if any."""
    return getattr(getattr(item, "obj", None), "claim", None)


def name_of(item: pytest.Item, claim: Claim) -> str:
    """The claim in words, with the test's own parameters: ``cached is recomputed [static]``."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return claim.says
    # The subject's id is the first (`pytest_generate_tests`), escaped by pytest.
    subject = callspec.params.get("subject", "").encode("unicode_escape").decode()
    own = callspec.id.removeprefix(subject).removeprefix("-")
    return f"{claim.says} [{own}]" if own else claim.says


class Assay:
    """Settles one claim on one subject: runs or resumes it, and compares it with expectations."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.config, self.node = request.config, request.node
        self.request = RunRequest.of(request.config)

    @property
    def session(self) -> Session:
        """The settings of laws, from the options."""
        return Session(
            PROFILES[self.request.profile],
            seed=self.request.seed,
            replay=self.request.replay,
            derandomize=bool(os.environ.get("CI")),
        )

    def settle(
        self, claim: Claim, subject: Subject | Absent, run: Callable[[Session], Result]
    ) -> None:
        """Run the claim, attach its result to the report, and pass, fail or skip by it."""
        __tracebackhide__ = True
        name = name_of(self.node, claim)
        result = self._recorded(name, subject)
        if result is None:
            result = replace(self._run(claim, subject, run), name=name)
            result = self._with_command(claim, result)
        judgement = self._judge(result, subject)
        result = replace(result, expected=judgement.foreseen)
        self.node.stash[RULING] = Ruling(result, self._description(subject), judgement)
        if result.verdict is Verdict.NOT_APPLICABLE and judgement.ok:
            pytest.skip(f"missing capability: {result.reason}")
        if judgement.status == "inconclusive":
            pytest.skip(f"inconclusive: {result.reason}")
        if judgement.fails:
            pytest.fail("\n".join([judgement.message, *_shown(result)]), pytrace=False)

    def _run(
        self, claim: Claim, subject: Subject | Absent, run: Callable[[Session], Result]
    ) -> Result:
        if isinstance(subject, Absent):
            return subject.result(claim)
        budget = self.config.stash[BUDGETED]
        if budget.is_used_up:
            return self._not_begun(claim, subject, NOT_EXAMINED, BUDGET)
        profile = self.session.profile
        # Decides whether the model is a large one.
        subject.settings = dataclasses.replace(subject.settings, reach=profile.reach)
        limited = claim.costly and findings.limit(profile, subject) < profile.brake
        stopped = self.config.stash.setdefault(STOPPED, set())
        here = subject.name, self.node.path
        if limited and here in stopped:
            why = f"not examined: a finding that shares its costly work was {TOO_SLOW}"
            return self._not_begun(claim, subject, why, LIMIT)
        result = run(budget.limited(self.session))
        if TOO_SLOW not in result.reason:
            return result
        if budget.is_used_up:
            return replace(result, details=result.details | {LEFT_OUT: BUDGET})
        if limited:
            stopped.add(here)
        return result

    def _not_begun(self, claim: Claim, subject: Subject, why: str, what: str) -> Result:
        """The result of a claim that does not start, for lack of ``what``."""
        details = {LEFT_OUT: what}
        return claim.result(subject, Verdict.INCONCLUSIVE, reason=why, details=details)

    def _with_command(self, claim: Claim, result: Result) -> Result:
        if (example := result.counterexample) is None or not example.blob:
            return result
        selector = claim.id if result.name == claim.says else f"{claim.id}:{result.name}"
        is_outside = self.node.path in {each.file for each in self.request.outside}
        command = self.request.replay_command(
            *(self.node.nodeid, result.subject, example.blob),
            whole=result.details.get(DECIDED_ON) == WHOLE,
            claim=selector if is_outside else "",
        )
        return replace(result, counterexample=replace(example, blob=None, replay=command))

    def _recorded(self, name: str, subject: Subject | Absent) -> Result | None:
        """The result that the resumed run has recorded; None unless resuming."""
        if DONE not in self.config.stash:
            message = self.config.workerinput.get(RESUMED, "[]")  # type: ignore[attr-defined]
            results = decode(message, list[tuple[Result, str]])
            self.config.stash[DONE] = {(r.name, r.subject, d): r for r, d in results}
        return self.config.stash[DONE].get((name, subject.name, subject.digest))

    def _judge(self, result: Result, subject: Subject | Absent) -> Judgement:
        expected = expected_of_models(self.config)
        dtype = parse_dtype(self.request.loading.dtype)
        device, form = parse_device(self.request.loading.device), ""
        if isinstance(subject, Subject):
            dtype, device = subject.dtype, subject.device
            form = subject.offer.form if isinstance(subject.offer, Offer) else ""
        return expectations.judge_result(expected, result, dtype_name(dtype), device.type, form)

    def _description(self, subject: Subject | Absent) -> SubjectRecord:
        """The subject's record: in full with its last claim, as probes of all capabilities take
        longer than many claims do; without further probes where the budget is used up.
        """
        descriptions = self.config.stash.setdefault(DESCRIBED, {})
        record = descriptions.get(subject.name)
        if isinstance(subject, Absent):
            record = record or subject.description()
        elif self.node.stash.get(LAST, True) and (record is None or record.is_short):
            late = self.config.stash[BUDGETED].is_used_up
            record = describe_subject(subject, 0.0 if late else self.session.profile.brake)
        else:
            record = record or describe_in_short(subject)
        descriptions[subject.name] = record
        return record


def _shown(result: Result) -> list[str]:
    """A counterexample in lines, and the command that replays it."""
    if (example := result.counterexample) is None:
        return []
    return example.lines + ([f"replay: {example.replay}"] if example.replay else [])
