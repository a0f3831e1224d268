"""Laws: checked example by example over drawn inputs, with a control that must be rejected.

A law is a test function that takes ``subject``, ``draw`` and ``check``:

    @law("C1", "a prefix's states do not change …", needs=["causal"], source="004, answer 2")
    def test_a_prefix_ignores_what_follows(subject, draw, check):
        prompt = draw(prompts(subject, shortest=2), "prompt")
        ...
        check.same(expected, observed)      # the law
        check.rejects(expected, damaged)    # its control

`check` compares against the float64 oracle and keeps the worst case; Hypothesis draws, and
shrinks a failure to the smallest counterexample.
"""

from __future__ import annotations

import inspect
import math
import re
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import hypothesis.errors
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness import capabilities, precision
from harness.clock import ForwardClock
from harness.errors import BadInput
from harness.profiles import Profile
from harness.rows import Rows
from harness.subject import Subject
from harness.tolerances import ROUTER_GAP, TOLERANCES, Distance, Tolerance, farthest
from harness.verdicts import Kind, Result, Verdict, margin

PASSED_ON = (capabilities.Missing, BadInput, hypothesis.errors.HypothesisException)
"""Exceptions of a law's body that are no verdict on the model."""

STRETCH = 4
"""Times the budget in seconds that a law may take until its control is rejected once."""

CONTROL_ENOUGH = 3
"""A control that was rejected this often need not be run again."""


class Broken(AssertionError):
    """A law does not hold on an example: what was observed, what is allowed, and where."""

    def __init__(self, observed: float, allowed: float, where: str) -> None:
        super().__init__(f"observed {observed:.3g}, allowed {allowed:.3g}, at {where}")
        self.observed, self.allowed, self.where = observed, allowed, where


class _Spent(BaseException):
    """The budget in seconds is over; leaves Hypothesis as an interrupt would."""


@dataclass(frozen=True)
class Claim:
    """What a claim's decorator says of it."""

    id: str
    says: str
    kind: Kind
    source: str
    needs: tuple[str, ...] = ()
    control: str = ""
    enough: int | None = None


@dataclass(frozen=True)
class Reference:
    """The plain path's rows on the subject and in float64, and how far apart they are."""

    plain: Rows
    oracle: Rows

    def map(self, change: Callable[[Rows], Rows]) -> Reference:
        """The same change on both sides."""
        return Reference(change(self.plain), change(self.oracle))

    def at(self, index: slice | Tensor | list[int]) -> Reference:
        """The positions that ``index`` selects."""
        return self.map(lambda rows: rows.at(index))


@dataclass
class Check:
    """Compares, judges and remembers the worst case over all examples of one law."""

    subject: Subject
    observed: float = 0.0
    allowed: float = 1.0
    compared: int = 0
    rejected: int = 0
    controls: int = 0
    control_margin: float = -margin(0.0, 1.0)
    details: dict[str, Any] = field(default_factory=dict)
    _worst: float = margin(0.0, 1.0)

    @property
    def tolerance(self) -> Tolerance:
        """What the subject's dtype allows."""
        return TOLERANCES[precision.working(self.subject)]

    def reference(self, plain: Callable[[Subject], Rows]) -> Reference:
        """Run the plain path on the subject and on its float64 oracle."""
        return Reference(plain(self.subject), plain(self.subject.oracle))

    def same(
        self, expected: Reference, observed: Rows, tolerance: Tolerance | None = None
    ) -> None:
        """The law: ``observed`` is as near to the oracle as the plain path is, within tolerance.

        Raises `Broken` where it is not.
        """
        __tracebackhide__ = True
        worst = self._compare(expected, observed, tolerance)
        self.judge(worst[0].error, worst[1], worst[0].where)

    def judge(self, observed: float, allowed: float, where: str = "") -> None:
        """The law as two numbers: ``observed`` must be at most ``allowed``; `Broken` if not."""
        __tracebackhide__ = True
        self.compared += 1
        self.remember(observed, allowed)
        if _beyond(observed, allowed):
            raise Broken(observed, allowed, where)

    def remember(self, observed: float, allowed: float) -> None:
        """Keep the two numbers if none before left less room."""
        room = margin(observed, allowed)
        if room < self._worst or self.compared == 1:
            self._worst, self.observed, self.allowed = room, observed, allowed

    @property
    def wants_control(self) -> bool:
        """Whether the control has not been rejected often enough yet."""
        return self.rejected < CONTROL_ENOUGH

    def rejects(
        self,
        expected: Reference,
        damaged: Rows | Callable[[], Rows],
        tolerance: Tolerance | None = None,
    ) -> None:
        """The control: the same comparison on ``damaged`` rows must come out the other way.

        Not every example can tell them apart (one token, equal tokens); at least one must.
        """
        if not self.wants_control:
            return
        rows = damaged() if callable(damaged) else damaged
        worst, allowed = self._compare(expected, rows, tolerance)
        self.judge_control(worst.error, allowed)

    def judge_control(self, observed: float, allowed: float) -> None:
        """The control as two numbers: counted as rejected when ``observed`` is above."""
        self.controls += 1
        self.rejected += _beyond(observed, allowed)
        self.control_margin = max(self.control_margin, -margin(observed, allowed))

    def _compare(
        self, expected: Reference, observed: Rows, tolerance: Tolerance | None
    ) -> tuple[Distance, float]:
        """The tensor with the least room: its farthest row and what is allowed there."""
        tolerance = tolerance or self.tolerance
        settled = expected.oracle.settled(ROUTER_GAP * tolerance.floor)
        plain = farthest(expected.plain, expected.oracle, settled)
        seen = farthest(observed, expected.oracle, settled)
        pairs = [(d, tolerance.allowed(plain[name].error)) for name, d in seen.items()]
        return min(pairs, key=lambda pair: margin(pair[0].error, pair[1]))


def _beyond(observed: float, allowed: float) -> bool:
    """Whether ``observed`` breaks the bound; what is not finite does, whatever is allowed."""
    return not (math.isfinite(observed) and observed <= allowed)


@dataclass(frozen=True)
class Session:
    """What a run's options say about laws."""

    profile: Profile
    seed: int | None = None
    replay: str | None = None
    derandomize: bool = False


def law(
    id: str,
    says: str,
    *,
    needs: Sequence[str] = (),
    source: str,
    control: str,
    enough: int | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a test function as the law ``id``.

    ``says`` is the claim as a sentence, ``needs`` the capabilities without which it does not
    apply, ``source`` the document and section, ``control`` what the body's `Check.rejects` does,
    in words, ``enough`` a number of examples beyond which more say nothing new.  The function's
    further parameters are pytest's (fixtures, parametrisation).
    """
    claim = Claim(id, says, Kind.LAW, source, tuple(needs), control, enough)

    def declare(body: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(body)
        others = [p for n, p in signature.parameters.items() if n not in ("draw", "check")]
        asked = inspect.Parameter("assay", inspect.Parameter.KEYWORD_ONLY)

        def test(*, assay: Any, subject: Subject, **given_: Any) -> None:
            __tracebackhide__ = True
            assay.settle(claim, subject, lambda s: run(claim, body, subject, given_, s))

        test.__name__, test.__doc__ = body.__name__, body.__doc__
        test.__module__, test.__qualname__ = body.__module__, body.__qualname__
        test.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in others] + [asked]
        )
        test.pytestmark = getattr(body, "pytestmark", [])  # type: ignore[attr-defined]
        test.claim = claim  # type: ignore[attr-defined]
        return test

    return declare


def run(
    claim: Claim,
    body: Callable[..., None],
    subject: Subject,
    given_: dict[str, Any],
    session: Session,
) -> Result:
    """Try a law on drawn examples and say what came of it."""
    started = time.perf_counter()
    for name in claim.needs:
        if (why := capabilities.of(subject).why_missing(name)) is not None:
            return _result(claim, subject, Verdict.NOT_APPLICABLE, reason=f"{name}: {why}")
    check = Check(subject)
    counterexample: dict[str, Any] | None = None
    examples = Examples(claim, body, subject, check, given_, session)
    clock = ForwardClock()
    try:
        with clock.watching(subject.model, *subject.known_twins):
            examples.search()
    except capabilities.Missing as missing:
        return _result(claim, subject, Verdict.NOT_APPLICABLE, reason=str(missing))
    except Broken as broken:
        check.remember(broken.observed, broken.allowed)
        verdict, reason = Verdict.REFUTED, str(broken)
        if not repeats(subject):
            reason += "; the model is not deterministic: it gives one prompt two outputs"
        counterexample = examples.counterexample(broken)
    else:
        if check.compared and check.rejected:
            verdict, reason = Verdict.UPHELD, ""
        elif check.compared:
            verdict, reason = Verdict.INCONCLUSIVE, f"the control passed too: {claim.control}"
        else:
            verdict, reason = Verdict.INCONCLUSIVE, "no example could be compared"
    return _result(
        claim,
        subject,
        verdict,
        reason=reason,
        observed=check.observed,
        bound=check.allowed,
        margin=margin(check.observed, check.allowed),
        examples=examples.tried,
        seconds=time.perf_counter() - started,
        counterexample=counterexample,
        details={
            **check.details,
            "control": claim.control,
            "controls rejected": f"{check.rejected} of {check.controls}",
            "control margin": check.control_margin,
            "seconds in forward passes": clock.seconds,
        },
    )


def _result(claim: Claim, subject: Subject, verdict: Verdict, **more: Any) -> Result:
    return Result(claim.id, claim.says, claim.kind, subject.name, verdict, **more)


class Examples:
    """Hypothesis's search over one law's inputs, within a budget of examples and seconds."""

    def __init__(
        self,
        claim: Claim,
        body: Callable[..., None],
        subject: Subject,
        check: Check,
        given_: dict[str, Any],
        session: Session,
    ) -> None:
        self.body, self.subject, self.check, self.given = body, subject, check, given_
        self.session, self.started = session, math.inf
        self.most = min(session.profile.examples, claim.enough or session.profile.examples)
        self.tried = 0
        self.failed: set[str] = set()
        self.failing_since: float | None = None
        self.last: dict[str, str] = {}
        self.blob: str | None = None

    def search(self) -> None:
        """Try examples until the budget is spent; `Broken` with the smallest failure found."""
        __tracebackhide__ = True
        names = set(inspect.signature(self.body).parameters)
        arguments = dict(self.given)
        if "subject" in names:
            arguments["subject"] = self.subject

        def example(data: st.DataObject) -> None:
            __tracebackhide__ = True
            shown: dict[str, str] = {}
            try:
                self.body(draw=self._drawer(data, shown), check=self.check, **arguments)
                self.tried += 1
            except PASSED_ON:
                raise
            except Broken:
                self._remember(shown)
                raise
            except Exception as error:
                # A model that refuses an input it should take breaks the law as well.
                self._remember(shown)
                self.check.details["traceback"] = traceback.format_exc()
                first = (str(error).splitlines() or [""])[0]
                raise Broken(math.inf, 0.0, f"{type(error).__name__}: {first}") from error
            # The first example pays for what is done once: libraries, twins, probes.
            self.started = min(self.started, time.perf_counter())
            if self._spent():
                raise _Spent

        # Hypothesis keys its database, and its draws in CI, by the function's name.
        variant = "_".join([self.subject.name, *map(str, self.given.values())])
        example.__name__ = re.sub(r"\W", "_", f"{self.body.__name__}_{variant}")
        example.__qualname__ = example.__name__
        example.__module__ = self.body.__module__
        session = self.session
        test = settings(
            max_examples=self.most,
            deadline=None,
            database=None if session.derandomize else settings().database,
            derandomize=session.derandomize and session.seed is None,
            # A slow model makes slow examples; the budget in seconds is ours.
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            report_multiple_bugs=False,
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        )(given(st.data())(example))
        if session.seed is not None:
            test = hypothesis.seed(session.seed)(test)
        if session.replay is not None:
            blob = session.replay.encode()
            test = hypothesis.reproduce_failure(hypothesis.__version__, blob)(test)
        try:
            test()
        except (_Spent, hypothesis.errors.Unsatisfiable):
            return
        except Broken as broken:
            self.blob = _blob(broken)
            raise
        except hypothesis.errors.Flaky as flaky:
            self.blob = _blob(flaky)
            where = "an example that broke the law once and then did not: not deterministic"
            raise Broken(self.check.observed, self.check.allowed, where) from flaky

    def _drawer(self, data: st.DataObject, shown: dict[str, str]) -> Callable[..., Any]:
        def draw(strategy: st.SearchStrategy, label: str) -> Any:
            value = data.draw(strategy, label=label)
            shown[label] = value.show(self.subject) if hasattr(value, "show") else repr(value)
            if self._shrunk_enough(shown):
                hypothesis.reject()
            return value

        return draw

    def _spent(self) -> bool:
        """Whether the seconds are over and nothing has failed.

        A control that has not been rejected yet gets `STRETCH` times as long.
        """
        seconds = self.session.profile.seconds * (1 if self.check.rejected else STRETCH)
        return time.perf_counter() - self.started > seconds and not self.failed

    def _shrunk_enough(self, shown: dict[str, str]) -> bool:
        """Whether shrinking is over: then only what has failed already is tried again.

        Examples known to fail stay failures, so that Hypothesis's last replay is not flaky.
        """
        if self.failing_since is None:
            return False
        if time.perf_counter() - self.failing_since < self.session.profile.shrink:
            return False
        prefix = repr(list(shown.items()))[:-1]
        return not any(known.startswith(prefix) for known in self.failed)

    def _remember(self, shown: dict[str, str]) -> None:
        self.tried += 1
        self.failing_since = self.failing_since or time.perf_counter()
        self.failed.add(repr(list(shown.items())))
        self.last = shown

    def counterexample(self, broken: Broken) -> dict[str, Any]:
        """The smallest failure: its inputs as text, the numbers, and how to see it again."""
        return {
            "inputs": self.last,
            "observed": broken.observed,
            "allowed": broken.allowed,
            "where": broken.where,
            "blob": self.blob,
        }


def _blob(error: BaseException) -> str | None:
    """The blob of Hypothesis's note on how to reproduce a failure."""
    for note in getattr(error, "__notes__", []):
        if found := re.search(r"reproduce_failure\([^,]+, b?['\"]([^'\"]+)['\"]\)", note):
            return found.group(1)
    return None


def repeats(subject: Subject) -> bool:
    """Whether two passes over one prompt give the same, as far as the dtype's floor goes."""
    ids = subject.content(torch.arange(min(4, subject.context or 4), device=subject.device)[None])
    try:
        once, again = subject.rows(ids), subject.rows(ids)
    except Exception:  # a model that raises has been found out by that
        return True
    floor = TOLERANCES[subject.dtype].floor
    return all(apart.error <= floor for apart in farthest(again, once).values())


def bit_equal(one: Tensor, other: Tensor) -> float:
    """The share of elements that are not the same, bit for bit: [..] twice → 0 to 1."""
    if one.shape != other.shape:
        return 1.0
    both_nan = torch.isnan(one) & torch.isnan(other)
    return float(((one != other) & ~both_nan).double().mean()) if one.numel() else 0.0
