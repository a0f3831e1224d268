"""Findings: statements about particular weights, settled by independent draws.

A finding is a test function that takes ``subject``, ``draws`` and ``sample``:

    @finding("A1", "permuting positions barely changes the output", …,
             bound=Bound(median, at_most=0.25), control="noise in place of the rows")
    def test_permuting_positions_barely_changes_the_output(subject, draws, sample):
        ...
        sample.add(effect=ratios, control=ratios_of_the_control)

It is called for one block of draws after another.  After every round the interval of the
statistic is compared with the bound: wholly on the claimed side is upheld, wholly on the other
refuted.  Repeated looks err more often than one, so each of the K looks that the profile allows
has confidence 1 - 0.05 / K (Bonferroni).  It is higher where the interval is only approximate
(`Statistic.caution`).  For any number of looks at most 5 % of findings are decided wrongly.
The control is judged in the same way and must come out the other way, or the finding stays
inconclusive.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from assay.harness.checking import significance
from assay.harness.checking.bounds import Bound as Bound
from assay.harness.checking.bounds import NoDifference
from assay.harness.checking.claim import Claim, Session, as_test, with_subject
from assay.harness.checking.draws import Draws
from assay.harness.checking.plans import Look, Plan, Progress
from assay.harness.checking.profiles import Profile
from assay.harness.checking.samples import Sample
from assay.harness.checking.statistics import Pair
from assay.harness.models.machine.shortage import ENDS
from assay.harness.models.subject import Subject
from assay.harness.models.subject.clock import ELSEWHERE, TOO_SLOW, Braked, ForwardClock
from assay.harness.models.subject.lengths import is_large
from assay.harness.results.arrays import Array
from assay.harness.results.verdicts import Kind, Result, Verdict

TRAINED = "trained"
"""The capability that a finding about trained weights needs."""

BLOCK = 64
"""Draws in one call of a finding's body."""


def finding(
    id: str,
    says: str,
    *,
    needs: Sequence[str] = (),
    source: str,
    bound: Bound,
    control: str,
    control_bound: Bound | NoDifference | None = None,
    draws: int | None = None,
    most: int = Profile.draws,
    block: int = BLOCK,
    costly: bool = False,
    toy: bool = False,
    slow: bool | tuple[str, ...] = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a test function as the finding ``id``.

    ``bound`` is the claimed side.  ``control`` says in words what the ``control`` series is: it
    must lie wholly beyond ``bound``, or satisfy ``control_bound`` if there is one.

    ``draws`` is the size of the first look (default: the statistic's ``fewest``).  Each look has
    twice the draws of the one before, up to ``most`` under the first profile, scaled with the
    draws of other profiles; one call gets a ``block`` of them.  A ``costly`` finding gets the
    profile's `Profile.prompts` in one call and has one look.  ``draws`` is then its number under
    the first profile, smaller where each draw costs more, and scales with the prompts of other
    profiles.  ``toy`` says that the finding is about networks that Assay makes
    itself (`harness.plugin.toy`).  ``slow`` says that ``quick`` has too few draws to decide it: it
    needs the profile ``standard``.  Where this is so of some variants, ``slow`` has their ids.
    Further parameters of the function are pytest's.
    """
    claim = Claim(
        *(id, says, Kind.FINDING, source, tuple(needs), control),
        toy=toy,
        slow=slow,
        bound=str(bound),
        costly=costly,
    )
    plan = Plan(bound, control_bound, draws, block, costly, most)

    def declare(body: Callable[..., None]) -> Callable[..., None]:
        runner = functools.partial(run, claim, plan)
        return as_test(claim, body, {"draws", "sample"}, runner)

    return declare


def run(
    claim: Claim,
    plan: Plan,
    body: Callable[..., None],
    subject: Subject,
    arguments: dict[str, Any],
    session: Session,
) -> Result:
    """Draw until the interval is decided or the budget is spent, and return the result."""
    started = time.perf_counter()
    sample, sizes = Sample(), plan.sizes(session.profile)
    blocks = 1 if plan.costly else max(1, math.ceil(max(sizes, default=0) / plan.block))
    reach, far = session.profile.reach, session.profile.far
    subject.settings = replace(subject.settings, reach=reach, far=far)
    brake = limit(session.profile, subject)
    clock = ForwardClock(brake, share=brake / blocks)
    try:
        if lacking := claim.lacks(subject, brake):
            return claim.not_applicable(subject, lacking)
        with clock.watching(subject):
            progress = _settle(claim, plan, body, subject, arguments, session, sample, clock)
    except Braked as braked:  # before or after a block of draws
        why = f"{braked}: the machine is {TOO_SLOW}"
        return claim.result(subject, Verdict.INCONCLUSIVE, reason=why)
    except ENDS as error:
        return claim.not_run(subject, error, clock.size)
    effect, control = progress.effect, progress.control
    verdict, reason = _conclusion(claim, sample, progress)
    if TRAINED in claim.needs:
        reason = reason or subject.provenance.caveat
    return claim.result(
        subject,
        verdict,
        reason=reason,
        observed=_finite(effect.value),
        bound=plan.bound.nearest(effect.value) if math.isfinite(effect.value) else None,
        margin=_finite(plan.bound.margin(effect.value, effect.interval)),
        interval=_finite_interval(effect.interval),
        examples=progress.drawn,
        seconds=time.perf_counter() - started,
        details={
            **{name: _json_number(value) for name, value in sample.details.items()},
            "claimed": str(plan.bound),
            significance.P: significance.p_value(
                plan.bound,
                sample.defined("effect")[: effect.draws],
                len(sizes),
                effect.verdict,
            ),
            "control": claim.control,
            "control must be": str(plan.control_bound or f"beyond: {plan.bound}"),
            "control value": _finite(control.value),
            "control interval": list(_finite_interval(control.interval) or ()) or None,
            **_sensitivity(plan, control),
            "recorded": {
                name: _middle(sample.defined(name))
                for name in sample.series
                if name not in ("effect", "control") and len(sample.defined(name))
            },
            "seconds in forward passes": clock.seconds,
            ELSEWHERE: clock.elsewhere,
            "passes and tokens": clock.work,
        },
        sample={name: sample.values(name) for name in sample.series},
        plots=tuple(sample.plots.values()),
    )


def limit(profile: Profile, subject: Subject) -> float:
    """The seconds after which a finding about ``subject`` ends undecided."""
    return min(profile.brake, profile.large_brake if is_large(subject) else math.inf)


class Pace:
    """How fast a finding is drawn, by ``clock``: the least seconds a draw in one of the blocks.

    The first block does not count: it also does one-time work, such as setting up a search.
    """

    def __init__(self, clock: ForwardClock) -> None:
        self.clock = clock
        self._each: list[float] = []
        self._since = clock.elapsed

    def took(self, draws: int) -> None:
        """Note that a block of ``draws`` is over."""
        now = self.clock.elapsed
        self._each.append((now - self._since) / draws)
        self._since = now

    def check(self, draws: int) -> None:
        """Raise `Braked` where so many further ``draws`` would end after the clock's brake."""
        took, needs = self.clock.elapsed, draws * min(self._each[1:], default=0.0)
        if took + needs > self.clock.brake:
            raise Braked(f"stopped after {took:.3g} s, as the next look is {needs:.3g} s away")


def _settle(
    claim: Claim,
    plan: Plan,
    body: Callable[..., None],
    subject: Subject,
    arguments: dict[str, Any],
    session: Session,
    sample: Sample,
    clock: ForwardClock,
) -> Progress:
    """Sample look by look until effect and control are decided."""
    sizes = plan.sizes(session.profile)
    progress, pace = Progress(most=max(sizes, default=0)), Pace(clock)
    arguments = with_subject(body, subject, arguments)
    for size in sizes:
        while progress.drawn < size:
            count = size if plan.costly else min(plan.block, size - progress.drawn)
            numbers = range(progress.drawn, progress.drawn + count)
            try:
                clock.check()
                pace.check(size - progress.drawn)
                body(draws=Draws(session.seed or 0, claim.id, numbers), sample=sample, **arguments)
            except Braked as braked:
                progress.stopped = str(braked)
                return progress
            progress.drawn += count
            pace.took(count)
        # A decision stands: each look errs with its own small share.
        if progress.effect.verdict is Verdict.INCONCLUSIVE:
            progress.effect = plan.effect(sample, len(sizes))
        if progress.control.verdict is Verdict.INCONCLUSIVE:
            progress.control = plan.control(sample, len(sizes), progress.effect.value)
        if Verdict.INCONCLUSIVE not in (progress.effect.verdict, progress.control.verdict):
            break
    return progress


def _sensitivity(plan: Plan, control: Look) -> dict[str, float]:
    """The difference that the control would have detected, where it must show none."""
    if not isinstance(plan.control_bound, NoDifference) or not _finite_interval(control.interval):
        return {}
    return {"control sees a difference of": plan.control_bound.sees(control.interval)}


def _conclusion(claim: Claim, sample: Sample, progress: Progress) -> tuple[Verdict, str]:
    effect, control = progress.effect, progress.control
    if progress.stopped:
        so_far = f"{progress.drawn} of {progress.most} draws"
        why = f"{progress.stopped} at {so_far}: the machine is {TOO_SLOW}"
        return Verdict.INCONCLUSIVE, why
    if not progress.drawn:
        return Verdict.INCONCLUSIVE, "the budget is zero: nothing was drawn"
    for name in ("effect", "control"):
        if why := sample.undefined(name):
            return Verdict.INCONCLUSIVE, why
    low, high = effect.interval
    if effect.verdict is Verdict.INCONCLUSIVE:
        shown = f"[{low:.3g}, {high:.3g}]"
        return effect.verdict, f"the interval {shown} holds the bound after {effect.draws} draws"
    if control.verdict is not Verdict.UPHELD:
        where = "the same way" if control.verdict is Verdict.REFUTED else "undecided"
        return Verdict.INCONCLUSIVE, f"the control came out {where}: {claim.control}"
    return effect.verdict, sample.why if effect.verdict is Verdict.REFUTED else ""


def _middle(values: Array) -> float:
    """The median, or the share of true draws where all are true or false."""
    yes_or_no = bool(np.isin(values, (0.0, 1.0)).all())
    return float(np.mean(values) if yes_or_no else np.median(values))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _json_number(value: Any) -> Any:
    return _finite(value) if isinstance(value, float) else value


def _finite_interval(interval: Pair) -> Pair | None:
    return interval if all(map(math.isfinite, interval)) else None
