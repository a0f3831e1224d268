"""Plans a run: what each claim costs on a model, what `--budget` leaves out, and `--dry-run`.

A model's passes are timed once in each process; recorded counts of passes and tokens then say what
a claim takes (`harness.checking.costs`).  A budget changes how many examples a law takes, and
which claims run: never how they are judged.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import pytest

from assay.harness.checking import costs, findings
from assay.harness.checking.claim import Claim, Session
from assay.harness.checking.profiles import LEAST, Profile
from assay.harness.models import float64, lengths, needs
from assay.harness.models.clock import MARGIN, TOO_SLOW
from assay.harness.models.needs import Needs
from assay.harness.models.speed import Speed
from assay.harness.models.subject import Subject
from assay.harness.report.texts import duration
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Kind

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

SHORTEST = 10.0
"""Seconds of the shortest budget: less is used up before the first claim."""

AT_THE_END = 0.02
"""Share of a budget for the summary, and for what cannot be interrupted at once."""

OF_BUDGET, OF_PLAN = 0.05, 3.0
"""Share of a budget, or multiple of its plan if that is more, after which a claim is stopped: what
was planned wrongly must not take the time of all others.
"""

SURELY = 3.0
"""Multiple of its limit that a finding must be planned to take to be left out: plans are good to a
factor of about two.
"""

PLANNED = "assay-planned"
"""The property of a report that carries a claim's plan."""

TOKENS = 32
"""Tokens of the pass whose time is shown."""

GIGABYTE = 1e9


def read_budget(text: str | None) -> float | None:
    """The seconds of ``--budget``: ``90s``, ``10m`` or ``2h``; raises `BadInput`."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*([smh]?)", text.strip(), re.ASCII)
    if found is None:
        raise BadInput(f"--budget {text!r}: is no time such as 90s, 10m or 2h")
    seconds = float(found[1]) * UNITS[found[2]]
    if seconds < SHORTEST:
        raise BadInput(f"--budget {text}: is less than the {SHORTEST:.0f} s that any run takes")
    return seconds


Named = tuple[Claim, str]
"""A claim, and its name with the parameters of its test."""


@dataclass(frozen=True)
class Planned:
    """A claim on a subject: why it does not apply, if so, else its examples and seconds."""

    id: str
    name: str
    kind: str
    subject: str
    lacking: str = ""
    examples: int = 0
    seconds: float = 0.0


class Planner:
    """Plans the claims of one process, which has ``budget`` seconds; None: as many as it needs."""

    def __init__(self, budget: float | None) -> None:
        self.budget, self._started = budget, perf_counter()
        self._speeds: dict[str, Speed] = {}
        self._examples: dict[str, int] = {}
        self._latest = self._planned = self._took = 0.0

    @property
    def left(self) -> float:
        """The seconds that are left of the budget, less what the end of a run takes."""
        return (1 - AT_THE_END) * (self.budget or 0.0) - (perf_counter() - self._started)

    @property
    def pace(self) -> float:
        """How many times as long as planned the claims took that ran; at least 1."""
        return max(1.0, self._took / self._planned) if self._planned else 1.0

    def finished(self, seconds: float) -> None:
        """Note what the claim took that was planned last."""
        self._planned += self._latest
        self._took += seconds

    def speed(self, subject: Subject) -> Speed:
        """What the subject's passes take, timed once."""
        if subject.name not in self._speeds:
            self._speeds[subject.name] = Speed.of(subject)
        return self._speeds[subject.name]

    def plan(self, claim: Claim, name: str, subject: Subject, profile: Profile) -> Planned:
        """What a claim costs on ``subject``."""
        common = (claim.id, name, claim.kind.value, subject.name)
        if lacking := claim.lacks(subject):
            return Planned(*common, lacking=str(lacking))
        subject.reach, subject.far = profile.reach, profile.far
        examples = claim.examples(profile)
        seconds = self._seconds(claim, name, subject, profile, examples)
        return Planned(*common, examples=examples, seconds=seconds)

    def _seconds(
        self, claim: Claim, name: str, subject: Subject, profile: Profile, examples: int
    ) -> float:
        cost = costs.cost_of(name, claim.kind)
        if claim.kind is Kind.LAW:
            share = lengths.share_of_tokens(subject)
            cost = replace(
                cost, tokens=cost.tokens * share, reference_tokens=cost.reference_tokens * share
            )
        return cost.seconds(self.speed(subject), examples)

    def session(
        self, claim: Claim, name: str, subject: Subject, session: Session, others: list[Named]
    ) -> Session | str:
        """The session in which the claim fits the budget, or why it is left out.

        ``others`` are (claim, name) of all claims of this process on the subject.
        """
        profile = session.profile
        limit = self._limit(claim, name, subject, profile)
        if self.budget is None and limit is None:
            return session
        planned = self.plan(claim, name, subject, profile)
        if planned.lacking:
            return session
        if limit is not None and planned.seconds > SURELY * limit:
            return (
                f"left out: needs about {duration(planned.seconds)}, and {profile.name} gives a "
                f"finding about a model of this size {duration(limit)}: the machine is {TOO_SLOW}"
            )
        if self.budget is None:
            return session
        examples = self._examples_of_laws(subject, profile, others)
        if claim.kind is Kind.LAW and planned.examples > examples:
            seconds = self._seconds(claim, name, subject, profile, examples)
            planned = replace(planned, examples=examples, seconds=seconds)
        self._latest = planned.seconds
        needed = planned.seconds * self.pace
        if needed > self.left:
            return (
                f"left out: needs about {duration(needed)}, and "
                f"{duration(max(0.0, self.left))} of the budget are left"
            )
        fair = max(OF_BUDGET * self.budget, OF_PLAN * needed)
        brake = min(profile.brake, fair, max(1.0, self.left / MARGIN))
        return replace(session, profile=replace(profile, examples=examples, brake=brake))

    def _limit(self, claim: Claim, name: str, subject: Subject, profile: Profile) -> float | None:
        """The seconds that ``profile`` gives a finding about a large model.

        None for other claims, and where it is not known what the finding needs: one that looks
        several times may be decided at the first.
        """
        if not claim.costly or claim.toy or not costs.is_recorded(name, claim.kind):
            return None
        subject.reach, subject.far = profile.reach, profile.far
        limit = findings.limit(profile, subject)
        return limit if limit < profile.brake else None

    def _examples_of_laws(self, subject: Subject, profile: Profile, others: list[Named]) -> int:
        """As many examples as the profile's, or as fit for all laws, but at least `LEAST`."""
        if subject.name not in self._examples:
            least = min(LEAST, profile.examples)
            laws = [each for each in others if each[0].kind is Kind.LAW]
            plans = [self.plan(law, name, subject, profile) for law, name in laws]
            total = sum(each.seconds for each in plans)
            fitting = int(profile.examples * self.left / max(total, 1e-9))
            self._examples[subject.name] = max(least, min(profile.examples, fitting))
        return self._examples[subject.name]


def memory_of(subject: Subject) -> tuple[Needs, bool]:
    """What checking the subject needs, and whether its float64 reference is a copy."""
    return needs.of(subject.model), not float64.streams(subject, subject.device)


class DryRun:
    """A plug-in of pytest: prints the plan instead of results (``--dry-run``)."""

    def __init__(self) -> None:
        self.plans: dict[str, list[Planned]] = defaultdict(list)
        self.facts: dict[str, dict[str, Any]] = {}
        self.refusals: list[str] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, None]:
        """Collect the plan that a test's report carries."""
        if report.when == "call" and (text := dict(report.user_properties).get(PLANNED)):
            message = json.loads(str(text))
            planned = Planned(**message["planned"])
            self.plans[planned.subject].append(planned)
            self.facts[planned.subject] = message["facts"]
        if (why := getattr(report, "refused", None)) is not None and why not in self.refusals:
            self.refusals.append(why)
        yield

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Nothing was checked, so nothing passed."""
        if report.when == "call" and PLANNED in dict(report.user_properties):
            return "planned", "", "PLANNED"
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A model that cannot be loaded is bad input."""
        if self.refusals:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The plan of each model."""
        for why in self.refusals:
            terminalreporter.write_line(f"ERROR: {why}", red=True)
        for subject, plans in self.plans.items():
            for line in lines(subject, plans, self.facts[subject]):
                terminalreporter.write_line(line)


def lines(subject: str, plans: list[Planned], facts: dict[str, Any]) -> list[str]:
    """A model's plan as text: passes, memory, and its claims, the cheapest first."""
    shown = [f"{subject}: {facts['parameters'] / 1e6:.4g} million parameters, {facts['dtype']}"]
    passes = f"a pass of {TOKENS} tokens takes {facts['own']:.3g} s"
    if facts["reference"] is not None:
        passes += f", of the float64 reference {facts['reference']:.3g} s"
    how = "a copy" if facts["copied"] else "the model's own weights"
    shown += [
        passes,
        f"memory about {facts['peak'] / GIGABYTE:.2g} GB and the libraries' "
        f"(weights {facts['weights'] / GIGABYTE:.2g} GB; the reference is {how})",
    ]
    for kind in Kind:
        apply = [each for each in plans if each.kind == kind.value and not each.lacking]
        total = duration(sum(each.seconds for each in apply))
        shown.append(f"{len(apply)} {kind.value}s apply, about {total}")
    apply = sorted((p for p in plans if not p.lacking), key=lambda p: (p.kind != "law", p.seconds))
    shown += [
        f"  {each.id:<4} {duration(each.seconds):>9}  {each.examples:>3} × {each.name}"
        if each.kind == Kind.LAW.value
        else f"  {each.id:<4} {duration(each.seconds):>9}        {each.name}"
        for each in apply
    ]
    shown += [f"  {p.id:<4} does not apply: {p.name} ({p.lacking})" for p in plans if p.lacking]
    return shown


def message(planner: Planner, planned: Planned, subject: Subject) -> str:
    """A claim's plan as it travels on its report, with facts about its subject."""
    speed = planner.speed(subject)
    need, copied = memory_of(subject)
    reference = speed.reference
    facts = {
        "parameters": subject.model.num_parameters(),
        "dtype": str(subject.dtype).removeprefix("torch."),
        "own": speed.own.seconds(1, TOKENS),
        "reference": None if reference is None else reference.seconds(1, TOKENS),
        "weights": need.weights,
        "copied": copied,
        "peak": need.copied if copied else need.streamed,
    }
    return json.dumps({"planned": asdict(planned), "facts": facts})
