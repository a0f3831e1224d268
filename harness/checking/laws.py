"""Laws: checked example by example over drawn inputs, with a control that must be rejected.

A law is a test function that takes ``subject``, ``draw`` and ``check``:

    @law("C1", "a prefix's states do not change …", needs=["causal"], source="004, answer 2")
    def test_a_prefix_ignores_what_follows(subject, draw, check):
        prompt = draw(prompts(subject, shortest=2), "prompt")
        ...
        check.same(expected, observed)      # the law
        check.rejects(expected, damaged)    # its control

`check` (`harness.checking.check`) compares with the float64 reference and keeps the worst case;
Hypothesis draws (`harness.checking.examples`), and shrinks a failure to its smallest example.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from assay.harness.checking.check import NOT_NUMBERS, Broken, Check
from assay.harness.checking.claim import Claim, Session, as_test
from assay.harness.checking.comparing import BY_ROUNDING
from assay.harness.checking.controls import Controls, Damage
from assay.harness.checking.examples import Examples
from assay.harness.checking.record import Record
from assay.harness.models.machine.shortage import ENDS
from assay.harness.models.subject import Subject, edges, kept_rows, lengths
from assay.harness.models.subject.clock import TOO_SLOW, Braked, ForwardClock
from assay.harness.results.verdicts import (
    BOUND,
    HIDDEN,
    NOT_PASSED,
    NOT_REACHED,
    PASSED,
    UNTIL_BROKEN,
    Counterexample,
    Kind,
    Result,
    Verdict,
    margin,
)

if TYPE_CHECKING:
    from assay.harness.checking.work import Work


def law(
    id: str,
    says: str,
    *,
    needs: Sequence[str] = (),
    source: str,
    control: str | Damage | Mapping[str, str | Damage],
    enough: int | None = None,
    toy: bool = False,
    slow: bool = False,
    core: bool | str = False,
    work: Work | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a test function as the law ``id``.

    ``says`` is the claim as a sentence, ``needs`` the capabilities that it requires, ``source``
    the document and section.  ``control`` says what the body's `Check.rejects` does: where there
    are several, a sentence for each name, and a `Damage` where one applies to some models only.
    ``enough`` is a number of examples beyond which more add nothing.  ``toy`` says that the law is
    about networks that Assay makes itself (`harness.plugin.toy`).  ``slow`` says that an example
    takes seconds on any model, because the law compiles it or starts processes: the short profiles
    leave it out.  ``work`` says what an example takes where ``needs`` does not show it: dearer
    laws come later, and ``core`` ones before others that take as much.  A core law is examined
    on the whole of a large model as well as on its slice (`harness.checking.parts`): where
    ``core`` is text, with this value of its parameter.  The function's further parameters are
    pytest's (fixtures, parametrisation).
    """
    controls = Controls(control)
    says_control = "; ".join(map(controls.sentence, controls.damages))
    damages = controls.damages
    claim = Claim(
        *(id, says, Kind.LAW, source, tuple(needs), says_control, enough, toy, damages),
        slow=slow,
        core=core,
        work=work,
    )

    def declare(body: Callable[..., None]) -> Callable[..., None]:
        return as_test(claim, body, {"draw", "check"}, functools.partial(run, claim))

    return declare


def run(
    claim: Claim,
    body: Callable[..., None],
    subject: Subject,
    arguments: dict[str, Any],
    session: Session,
) -> Result:
    """Check a law on drawn examples, of a large model's slice, and return the result."""

    def examine(part: Subject, most: int, shown: bool = False) -> Result:
        return _examined(claim, body, part, arguments, session, most, shown)

    if not lengths.is_sliced(subject):
        return examine(subject, claim.examples(session.profile))
    from assay.harness.checking import parts  # only a large model is sliced

    return parts.decide(claim, subject, arguments, session, examine)


def _examined(
    claim: Claim,
    body: Callable[..., None],
    subject: Subject,
    arguments: dict[str, Any],
    session: Session,
    most: int,
    shown: bool = False,
) -> Result:
    """Check a law on at most so many examples of ``subject``; on more, unless another subject has
    ``shown`` that it detects an error as small as the goal.
    """
    started = time.perf_counter()
    check = Check(subject, Controls(claim.controls))
    record = check.record
    record.shown = shown
    counterexample: Counterexample | None = None
    broken_by: Broken | None = None
    reach, far = session.profile.reach, session.profile.far
    subject.settings = replace(subject.settings, reach=reach, far=far)
    brake = session.profile.brake
    clock = ForwardClock(brake, share=brake / most)
    spared_before = kept_rows.spared(subject)
    most_tokens = lengths.most_tokens(subject, session.profile.passes)
    examples = Examples(most, body, subject, check, arguments, session, clock, most_tokens)
    try:
        if lacking := claim.lacks(subject, brake):
            return claim.not_applicable(subject, lacking)
        record.controls.on(subject)
        with clock.watching(subject):
            examples.search()
        if session.replay is not None:
            why = "the replayed example keeps the law"
            return claim.result(subject, Verdict.UPHELD, reason=why, examples=1)
    except Braked as braked:
        verdict, reason = Verdict.INCONCLUSIVE, str(braked)
        reason = f"{reason} at {examples.tried} of {most} examples: the machine is {TOO_SLOW}"
    except Broken as broken:
        broken_by = broken
        record.add(broken.observed, broken.allowed)
        verdict, reason = Verdict.REFUTED, str(broken)
        from assay.harness.checking import diagnosis  # only a broken law needs it

        if not math.isfinite(broken.observed) and (why := diagnosis.overflow(subject)):
            return claim.result(subject, Verdict.INCONCLUSIVE, reason=why)
        counterexample = examples.counterexample(broken)
        cause = diagnosis.probed(subject, claim.needs) or counterexample.cause
        if not diagnosis.repeats(subject):
            cause = "the model is not deterministic: it gives one prompt two outputs"
            reason += f"; {cause}"
        counterexample = structs.replace(counterexample, cause=cause)
    except ENDS as error:
        return claim.not_run(subject, error, examples.size or clock.size)
    else:
        verdict, reason = _conclusion(claim, check, examples)
    observed, allowed = record.observed, record.allowed
    if broken_by is not None:
        observed, allowed = broken_by.observed, broken_by.allowed
    return claim.result(
        subject,
        verdict,
        reason=reason,
        observed=observed,
        bound=allowed,
        margin=margin(observed, allowed),
        examples=examples.tried,
        seconds=time.perf_counter() - started,
        counterexample=counterexample,
        details={
            **check.details,
            "control": claim.control,
            "controls rejected": f"{record.controls.rejected} of {record.controls.tried}",
            "control margin": record.controls.margin,
            "controls": record.controls.as_json(),
            BOUND: record.judged_by,
            **record.detection.as_json(),
            **_edges(subject, record),
            **({NOT_REACHED: reason} if reason == record.unreached != "" else {}),
            **({HIDDEN: True} if _is_hidden(check, reason) else {}),
            **({} if examples.failed_at is None else {UNTIL_BROKEN: examples.failed_at}),
            "seconds in forward passes": clock.seconds,
            "passes and tokens": clock.work,
            "passes and tokens shared": [
                after - before
                for after, before in zip(kept_rows.spared(subject), spared_before, strict=True)
            ],
        },
        # A broken law's margins would only cover the examples before the failure.
        sample={} if counterexample else {"margin": np.asarray(record.margins, dtype=float)},
    )


def _conclusion(claim: Claim, check: Check, examples: Examples) -> tuple[Verdict, str]:
    """The verdict on a law that no example broke, and why if it is not upheld on all of them."""
    record = check.record
    if record.unreached:
        return Verdict.INCONCLUSIVE, record.unreached
    if not record.compared or not examples.tried:  # one that ends half-way says little
        why = NOT_NUMBERS if NOT_NUMBERS in check.details else examples.unsettled
        return Verdict.INCONCLUSIVE, ": ".join(filter(None, ["no example could be compared", why]))
    if complaint := record.controls.complaint:
        return Verdict.INCONCLUSIVE, complaint
    if record.detection.blunt:
        return Verdict.INCONCLUSIVE, _too_blunt(record)
    return Verdict.UPHELD, _short_of(check.subject, record)


def _edges(subject: Subject, record: Record) -> dict[str, Any]:
    """The details about the model's windows, chunks and rotations: which ones prompts passed."""
    if not record.tokens:
        return {}
    passed, beyond = edges.passed(subject, record.tokens)
    return {name: each for name, each in ((PASSED, passed), (NOT_PASSED, beyond)) if each}


def _short_of(subject: Subject, record: Record) -> str:
    """The note of an upheld law whose prompts should pass every edge, on those that none does; or
    on the tokens of the longest prompt, where one should have more.
    """
    _, beyond = edges.passed(subject, record.tokens)
    names = ", ".join(f"{name} of {size}" for name, size in beyond.items())
    if record.at_edges and names:
        return f"compared up to {record.tokens} tokens, not past {names}"
    if 0 < record.tokens < record.goal:
        return f"compared up to {record.tokens} tokens, not {record.goal}"
    return ""


def _is_hidden(check: Check, reason: str) -> bool:
    """Whether a law is undecided only because of the rounding of 16 bits."""
    blunt = reason == _too_blunt(check.record) and check.record.detection.above_goal
    return reason.endswith(BY_ROUNDING) or (blunt and (check.in_half or not check.wide))


def _too_blunt(record: Record) -> str:
    """The reason of a law that is undecided only because it detects no small enough error."""
    return f"too blunt: {record.detection.blunt}"
