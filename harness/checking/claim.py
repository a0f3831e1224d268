"""What laws and findings share: the words of a claim's declaration, and the test made from it."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis.errors import DidNotReproduce, HypothesisException, InvalidArgument

from assay.harness.checking.controls import Damage
from assay.harness.checking.profiles import Profile
from assay.harness.models import capabilities
from assay.harness.models.shortage import Size, at_size, kept_running, release, shortage
from assay.harness.models.subject import Subject
from assay.harness.results.errors import LONGEST, BadInput, Missing, brief, printable, shortened
from assay.harness.results.verdicts import ERROR, STORED, Kind, Result, Verdict


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
    toy: bool = False
    controls: Mapping[str, Damage] = field(default_factory=dict, compare=False)
    """A law's controls by name; a law's only control has the empty name."""
    bound: str = ""
    """What a finding's statistic must come to, in words."""

    def lacks(self, subject: Subject) -> str:
        """The first capability that ``subject`` lacks, and why; empty if it lacks none."""
        for name in self.needs:
            if (why := capabilities.probe(subject).why_missing(name)) is not None:
                return f"{name}: {why}"
        return ""

    def result(self, subject: Subject, verdict: Verdict, **more: Any) -> Result:
        """What came of the claim on ``subject``."""
        more.setdefault("source", self.source)
        more["reason"] = shortened(more.get("reason", ""), LONGEST)
        return Result(self.id, self.says, self.kind, subject.name, verdict, **more)

    def not_run(self, subject: Subject, error: BaseException, size: Size | None) -> Result:
        """What the claim comes to where its body, or a probe before it, ended in ``error``.

        ``size`` is that of the last prompt that was run.  Raises ``error`` where that is about
        the run: bad input, or an example of Hypothesis's that cannot be replayed.
        """
        if why := shortage(error):
            release(error)
            return self.result(subject, Verdict.INCONCLUSIVE, reason=why + at_size(size))
        if isinstance(error, Missing):
            return self.result(subject, Verdict.NOT_APPLICABLE, reason=str(error))
        if isinstance(error, BadInput | HypothesisException):
            raise error
        return self.ended(subject, error)

    def replayed(self, subject: Subject, error: HypothesisException) -> Result:
        """What a replayed example comes to where Hypothesis ends in ``error``: it keeps the law.

        Raises `BadInput` where it is not an example of this claim.
        """
        if isinstance(error, InvalidArgument):
            raise BadInput(f"the example to replay: {error}") from error
        # Hypothesis raises this on its own where the example ran to its end; where the example
        # did not fit, while it handles another.
        if not isinstance(error, DidNotReproduce) or error.__context__ is not None:
            why = f"the example to replay is not an example of {self.id}, {self.says!r}"
            raise BadInput(why) from error
        why = "the replayed example keeps the law"
        return self.result(subject, Verdict.UPHELD, reason=why, examples=1)

    def ended(self, subject: Subject, error: BaseException) -> Result:
        """The claim was ended by ``error``, which may be of the model's code or of the claim's."""
        trace = shortened("".join(traceback.format_exception(error)), STORED)
        why = f"ended in {brief(error)}"
        return self.result(subject, Verdict.INCONCLUSIVE, reason=why, details={ERROR: trace})


@dataclass(frozen=True)
class Session:
    """What a run's options say about laws."""

    profile: Profile
    seed: int | None = None
    replay: str | None = None
    derandomize: bool = False


Runner = Callable[[Callable[..., None], Subject, dict[str, Any], Session], Result]
"""Settles a claim's body on a subject: (body, subject, pytest's arguments, session)."""


def as_test(
    claim: Claim, body: Callable[..., None], ours: set[str], run: Runner
) -> Callable[..., None]:
    """The test function that pytest collects for ``body``.

    Parameters named in ``ours`` are given by ``run``; the others are pytest's (fixtures,
    parametrisation).  The plug-in marks it when it is collected: other runs of pytest, in which
    claims are imported (`assay.parametrize`), do not know Assay's marks.
    """
    signature = inspect.signature(body)
    others = [p for n, p in signature.parameters.items() if n not in ours | {"subject"}]
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("subject", "assay")
    ]

    def attempt(subject: Subject, arguments: dict[str, Any], session: Session) -> Result:
        """Run the claim; whatever a model's code raises is the claim's own result."""
        try:
            with kept_running():
                return run(body, subject, arguments, session)
        except (KeyboardInterrupt, BadInput):
            raise
        except HypothesisException as error:
            ended = claim.ended if session.replay is None else claim.replayed
            return ended(subject, error)
        except BaseException as error:  # pytest's Skipped, GeneratorExit, …
            return claim.not_run(subject, error, None)

    def test(*, assay: Any, subject: Subject, **arguments: Any) -> None:
        __tracebackhide__ = True
        assay.settle(claim, subject, lambda session: attempt(subject, arguments, session))

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    test.__module__, test.__qualname__ = body.__module__, body.__qualname__
    test.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            own[0],
            *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in others),
            own[1],
        ]
    )
    test.pytestmark = list(getattr(body, "pytestmark", []))  # type: ignore[attr-defined]
    test.claim = claim  # type: ignore[attr-defined]
    return test


def with_subject(
    body: Callable[..., None], subject: Subject, arguments: dict[str, Any]
) -> dict[str, Any]:
    """``arguments`` of a claim's body, with the ``subject`` where the body has that parameter."""
    named = "subject" in inspect.signature(body).parameters
    return {**arguments, "subject": subject} if named else dict(arguments)


def is_asked(asked: str, claim: Claim, name: str) -> bool:
    """Whether ``asked``, ``ID`` or ``ID:TEXT``, means the claim's test with this ``name``."""
    number, _, text = asked.partition(":")
    return claim.id == number and text in name


def unknown(asked: Sequence[str], named: Collection[tuple[Claim, str]], what: str) -> str:
    """Which of ``asked`` means no test among those ``named`` (claim, name); empty if each does.

    ``what`` they are called in the message.
    """
    for each in asked:
        if not any(is_asked(each, claim, name) for claim, name in named):
            numbers = sorted({claim.id for claim, _ in named}, key=lambda n: (n[0], int(n[1:])))
            return (
                f"{printable(each)}: there is no such {what} here; there are {', '.join(numbers)}"
            )
    return ""
