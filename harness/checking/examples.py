"""Hypothesis's search over one law's inputs: as many examples as the profile says."""

from __future__ import annotations

import itertools
import math
import re
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import hypothesis
import hypothesis.errors
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from assay.harness.checking.check import Broken, Check
from assay.harness.checking.claim import Session, with_subject
from assay.harness.checking.comparing import Unsettled
from assay.harness.checking.entries import Entries, NotAnExample, blob_of, entry_of
from assay.harness.checking.shared import Offer, examples, offered
from assay.harness.models.machine.memory import give_back
from assay.harness.models.machine.shortage import ENDS, Size, shortage
from assay.harness.models.subject import Subject, lengths, releasing
from assay.harness.models.subject.clock import Braked, ForwardClock
from assay.harness.results.errors import BadInput, Missing, shortened
from assay.harness.results.verdicts import ERROR, STORED, Counterexample

PASSED_ON = (Missing, BadInput, hypothesis.errors.HypothesisException)
"""Exceptions of a law's body that say nothing about the model."""

ROUNDS = 4
"""Rounds of examples that a law may take until each control is rejected and a leak as small as
the goal is detected; usually one is enough."""


LEAST = 2
"""Examples that a law takes whatever its passes cost: the first may be the simplest one."""

PASSED_OVER = 10
"""Examples that may not count, per example of the budget, before a search ends: Hypothesis alone
would try hundreds to find the first that counts."""


class Draw(Protocol):
    """What draws a law's inputs: ``draw(strategy, label)``, a strategy of Hypothesis.

    Returns a value of the strategy, of which a failing example gets the smallest that also fails.
    A counterexample shows it under ``label``.
    """

    def __call__(self, strategy: st.SearchStrategy, label: str) -> Any:
        """A drawn value."""


class _End(BaseException):
    """Ends the search as an interrupt would, with the ``error`` to raise, or None for none."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self.error = error


class Examples:
    """Hypothesis's search over one law's inputs: ``most`` examples, ``tried`` so far.

    The number is the profile's or the claim's own; ``clock`` is the emergency brake, and counts
    the tokens of passes, of which a law spends ``most_tokens``.
    """

    def __init__(
        self,
        most: int,
        body: Callable[..., None],
        subject: Subject,
        check: Check,
        arguments: dict[str, Any],
        session: Session,
        clock: ForwardClock,
        most_tokens: float = math.inf,
    ) -> None:
        self.body, self.subject, self.check, self.arguments = body, subject, check, arguments
        self.session, self.clock, self.most_tokens = session, clock, most_tokens
        self.most, self.tried = most, 0
        self.failed_at: int | None = None
        self.shrunk = 0
        self.unsettled, self.passed_over = "", 0
        self.smallest: Broken | None = None
        self.failures: set[str] = set()
        self.size: Size | None = None
        self.last: dict[str, str] = {}
        self.latest: tuple[Broken, dict[str, str]] | None = None
        self.first: tuple[Broken, dict[str, str]] | None = None
        self.entry: bytes | None = None
        self.blob: str | None = None
        self.offer: Offer | None = None

    def search(self) -> None:
        """Try the examples; raises `Broken` with the smallest failure, `Braked` in an emergency.

        Raises the error of an example that exceeds the machine, unless one broke the law before.

        Further rounds of as many examples follow until each control is rejected and a small leak
        detected.
        """
        __tracebackhide__ = True
        if self.session.replay is not None:
            self._replay(entry_of(self.session.replay))
            return
        for number in range(ROUNDS):
            self._round(number)
            left = 0 if self._spent else self.most - self.tried
            if self.offer is not None and not number and left > 0:
                self._round(number, examples(self.offer, str(self.session.seed or 0), left))
            if self.check.record.can_fail or self._hopeless:
                return

    def _replay(self, entry: bytes) -> None:
        """Try one example again; raises `NotAnExample` where the law draws another one."""
        __tracebackhide__ = True
        try:
            self._round(0, [entry])
        finally:
            # Hypothesis replaces draws that do not fit, and adds those that are missing.
            if self.entry is None or not entry.startswith(self.entry):
                raise NotAnExample

    def _round(self, number: int, entries: Sequence[bytes] | None = None) -> None:
        """One round of examples; the rounds draw different ones.

        The first ends after one where the law can share prompts with others, and a round that
        begins with ``entries`` of the database follows.
        """
        __tracebackhide__ = True
        arguments = with_subject(self.body, self.subject, self.arguments)
        session, calls = self.session, itertools.count()
        record = self.check.record
        most = self.most if entries is None else self.most - self.tried

        def example(data: st.DataObject) -> None:
            __tracebackhide__ = True
            ours = next(calls) < len(entries or ()) and self.smallest is None
            inputs: dict[str, str] = {}
            self.shrunk += self.smallest is not None
            self.size = self.latest = None
            if lengths.is_sliced(self.subject):  # the whole of it, in whose passes much piles up
                give_back(releasing.SMALL)
            record.begin(shared=ours)
            try:
                self.body(draw=self._drawer(data, inputs), check=self.check, **arguments)
                record.end()
                if self.size is not None:
                    record.tokens = max(record.tokens, self.size[1])
                self.tried += 1
            except (Unsettled, hypothesis.errors.UnsatisfiedAssumption) as why:
                self.unsettled = str(why) if isinstance(why, Unsettled) else ""
                self.passed_over += 1
                if self._hopeless and self.smallest is None:
                    raise _End from None
                hypothesis.reject()
            except PASSED_ON as error:
                if shortage(error):
                    raise _End(self.smallest or error) from error
                # Not a counterexample: another run may raise it from another line, or not at all.
                if isinstance(error, Missing | BadInput):
                    raise _End(error) from error
                raise
            except Broken as failure:
                self._failed(failure, inputs)
                raise
            except ENDS as error:
                if shortage(error):
                    raise _End(self.smallest or error) from error
                # A model that rejects a valid input breaks the law as well.
                self.check.details[ERROR] = shortened(traceback.format_exc(), STORED)
                first = shortened((str(error).splitlines() or [""])[0], 500)
                raised = Broken(math.inf, 0.0, f"{type(error).__name__}: {first}")
                self._failed(raised, inputs)
                raise raised from error
            if self._enough:
                raise _End(self.smallest)
            self.clock.check()
            if self.smallest is None and (
                ((number or self._spent) and record.can_fail)
                or (self.offer and not number and entries is None)
            ):
                raise _End

        # Hypothesis keys its draws in CI by the function's name.
        variant = "_".join([self.subject.name, *map(str, self.arguments.values())])
        variant += f"_{number}" if number else ""
        example.__name__ = re.sub(r"\W", "_", f"{self.body.__name__}_{variant}")
        example.__qualname__ = example.__name__
        example.__module__ = self.body.__module__
        test = given(st.data())(example)
        # Before the settings: a seed takes their database away.
        if session.seed is not None:
            test = hypothesis.seed(f"{session.seed}/{number}" if number else session.seed)(test)
        elif session.derandomize:
            test = hypothesis.seed(f"{example.__module__}.{example.__name__}")(test)
        test = settings(
            max_examples=most,
            deadline=None,
            database=Entries(entries or (), self._keep),
            derandomize=False,  # it allows no database
            # A slow model makes slow examples; the brake is ours.
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            phases=_phases(session),
        )(test)
        # Hypothesis's key of the database, which it would parse and tokenise the source for.
        key = example.__name__.encode()
        test._hypothesis_internal_database_key = key  # type: ignore[attr-defined]
        try:
            test()
        except hypothesis.errors.Unsatisfiable:
            return
        except _End as end:
            if end.error is not None:
                raise end.error from end.error.__cause__  # which may be what the machine lacked
        except Braked as braked:
            raise (self.smallest or braked) from None
        except hypothesis.errors.Flaky as flaky:
            where = "an example that broke the law once and then did not: not deterministic"
            if self.first is None:
                raise Broken(record.observed, record.allowed, where) from flaky
            failure, self.last = self.first
            at = f"{failure.where}, {where}" if failure.where else where
            raise Broken(failure.observed, failure.allowed, at, failure.cause) from flaky

    def _drawer(self, data: st.DataObject, inputs: dict[str, str]) -> Draw:
        def draw(strategy: st.SearchStrategy, label: str) -> Any:
            if not inputs and not self.tried:
                self.offer = offered(strategy)
            value = data.draw(strategy, label=label)
            if (size := _size(value)) is not None:
                self.size = size
            record = self.check.record
            record.at_edges |= getattr(value, "at_edges", False)
            record.goal = max(record.goal, getattr(value, "goal", 0))
            inputs[label] = value.show(self.subject) if hasattr(value, "show") else repr(value)
            return value

        return draw

    @property
    def _spent(self) -> bool:
        """Whether the passes so far leave nothing for a further example."""
        return self.tried >= LEAST and self.clock.spent >= self.most_tokens

    @property
    def _hopeless(self) -> bool:
        """Whether too many examples did not count to go on searching."""
        return self.passed_over >= PASSED_OVER * self.most

    @property
    def _enough(self) -> bool:
        """Whether one example is replayed, or a failure shrunk as often as the profile allows."""
        return self.session.replay is not None or self.shrunk > self.session.profile.shrink > 0

    def _keep(self, entry: bytes) -> None:
        """Keep the example that Hypothesis saves: the last one, and the smallest failure."""
        self.entry = entry
        if self.latest is not None:
            self.smallest, self.last = self.latest
            self.blob = blob_of(entry)

    def _failed(self, failure: Broken, inputs: dict[str, str]) -> None:
        """Keep a failure: after the first one, Hypothesis tries smaller examples only.

        `_End` ends that, but only at an example that is new to Hypothesis: when it repeats
        one, it must see the same failure again, or it would call the law flaky.
        """
        self.tried += 1
        self.failed_at = self.failed_at or self.tried
        new = repr(inputs) not in self.failures
        self.failures.add(repr(inputs))
        self.latest = failure, inputs
        self.first = self.first or self.latest
        if new and self._enough:
            raise _End(failure)

    def counterexample(self, broken: Broken) -> Counterexample:
        """The smallest failure: its inputs as text, the numbers, and how to see it again."""
        what = broken.observed, broken.allowed, broken.where, broken.cause
        return Counterexample(self.last, *what, self.blob)


def _size(value: Any) -> Size | None:
    """Rows and tokens of a drawn value, if it is a prompt."""
    ids = getattr(value, "ids", None)
    return (ids.shape[0], ids.shape[1]) if torch.is_tensor(ids) and ids.ndim == 2 else None


def _phases(session: Session) -> list[Phase]:
    """Hypothesis's phases: without shrinking where the profile has no budget for it."""
    if session.replay is not None:
        return [Phase.reuse]
    phases = [Phase.reuse, Phase.generate]
    return [*phases, Phase.shrink] if session.profile.shrink > 0 else phases
