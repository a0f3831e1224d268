"""What laws and findings share: a claim's declaration, and the test made from it."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.harness.checking.controls import Damage
from assay.harness.checking.entries import NotAnExample
from assay.harness.models import capabilities
from assay.harness.models.machine.shortage import ENDS, Size, at_size, release, shortage
from assay.harness.models.subject import Subject
from assay.harness.models.subject.releasing import release_copies
from assay.harness.results.errors import (
    LONGEST,
    BadInput,
    Missing,
    Unavailable,
    brief,
    shortened,
)
from assay.harness.results.verdicts import (
    ERROR,
    STORED,
    UNAVAILABLE,
    Kind,
    Result,
    Verdict,
    is_about_engines,
)

if TYPE_CHECKING:
    from assay.harness.checking.profiles import Profile
    from assay.harness.checking.work import Work


@dataclass(frozen=True)
class Claim:
    """What a claim's decorator declares."""

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
    """What a finding's statistic must reach, in words."""
    slow: bool | tuple[str, ...] = False
    """Whether short profiles leave it out, or the ids of those variants that they leave out: an
    example of a law takes seconds, or a finding takes more draws than they have to decide.
    """
    costly: bool = False
    """Whether a finding takes all its draws before it is judged: each of them takes seconds."""
    core: bool | str = False
    """Whether other laws say little of a model that breaks this one; text: with this value of its
    parameter.  A core law is examined on the whole of a large model as well as on its slice.
    """
    work: Work | None = None
    """What a law takes, where its needs do not say it."""

    def is_slow(self, name: str) -> bool:
        """Whether short profiles leave out the test of this ``name``: sentence and variant."""
        if isinstance(self.slow, bool):
            return self.slow
        return any(each in name.removeprefix(self.says) for each in self.slow)

    @property
    def about_engines(self) -> bool:
        """Whether it is about what serves a model, and not about a model of torch."""
        return is_about_engines(self.needs)

    def examples(self, profile: Profile) -> int:
        """The examples that a law takes in ``profile``."""
        return min(profile.examples, self.enough or profile.examples)

    def lacks(self, subject: Subject, brake: float = math.inf) -> Missing | None:
        """The first missing capability of ``subject``, and why; None if it has them all.

        Raises `Braked` where a pass of a probe takes more than ``brake`` seconds.
        """
        if self.about_engines and subject.own_capabilities is None:
            return Missing(f"{self.needs[0]}: the model is no engine")
        probe = capabilities.probe(subject)
        for name in self.needs:
            if (why := probe.why_missing_within(brake, name)) is not None:
                return probe.missing(name, f"{name}: {why}")
        return None

    def result(self, subject: Subject, verdict: Verdict, **fields: Any) -> Result:
        """The claim's result on ``subject``."""
        fields.setdefault("source", self.source)
        fields["reason"] = shortened(fields.get("reason", ""), LONGEST)
        return Result(self.id, self.says, self.kind, subject.name, verdict, **fields)

    def not_applicable(self, subject: Subject, lacking: Missing) -> Result:
        """The result where ``subject`` lacks a capability."""
        details = {UNAVAILABLE: True} if isinstance(lacking, Unavailable) else {}
        return self.result(subject, Verdict.NOT_APPLICABLE, reason=str(lacking), details=details)

    def not_run(self, subject: Subject, error: BaseException, size: Size | None) -> Result:
        """The result where the claim's body, or a probe before it, raised ``error``.

        ``size`` is that of the last prompt that was run.
        """
        if why := shortage(error):
            release(error)
            return self.result(subject, Verdict.INCONCLUSIVE, reason=why + at_size(size))
        if isinstance(error, Missing):
            return self.not_applicable(subject, error)
        return self.ended(subject, error)

    def ended(self, subject: Subject, error: BaseException) -> Result:
        """The result where ``error`` ended the claim: from the model's code or the claim's own."""
        trace = shortened("".join(traceback.format_exception(error)), STORED)
        why = str(error) if isinstance(error, BadInput) else f"ended in {brief(error)}"
        return self.result(subject, Verdict.INCONCLUSIVE, reason=why, details={ERROR: trace})


@dataclass(frozen=True)
class Session:
    """The options of a run that concern claims."""

    profile: Profile
    seed: int | None = None
    replay: str | None = None
    derandomize: bool = False


Runner = Callable[[Callable[..., None], Subject, dict[str, Any], Session], Result]
"""Runs a claim's body on a subject: (body, subject, pytest's arguments, session)."""


def as_test(
    claim: Claim, body: Callable[..., None], ours: set[str], run: Runner
) -> Callable[..., None]:
    """The test function that pytest collects for ``body``.

    ``run`` supplies the parameters named in ``ours``, and pytest the others (fixtures,
    parametrisation).  The plug-in adds Assay's marks at collection: other pytest runs that import
    claims (`assay.parametrize`) do not know them.  Raises `BadInput` for one without a control.
    """
    if not claim.control.strip():
        raise BadInput(f"{claim.id}: has no control: say what the claim has to reject")
    signature = inspect.signature(body)
    parameters = [p for n, p in signature.parameters.items() if n not in ours | {"subject"}]
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("subject", "assay")
    ]

    def attempt(subject: Subject, arguments: dict[str, Any], session: Session) -> Result:
        """Run the claim; an exception from a model's code becomes the claim's result."""
        try:
            return run(body, subject, arguments, session)
        except NotAnExample as error:
            why = f"replay: this is not an example of {claim.id}, {claim.says!r}"
            raise BadInput(why) from error
        except ENDS as error:
            return claim.not_run(subject, error, None)
        finally:
            release_copies(subject)

    def test(*, assay: Any, subject: Subject, **arguments: Any) -> None:
        __tracebackhide__ = True
        assay.settle(claim, subject, lambda session: attempt(subject, arguments, session))

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    test.__module__, test.__qualname__ = body.__module__, body.__qualname__
    test.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            own[0],
            *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters),
            own[1],
        ]
    )
    test.pytestmark = list(getattr(body, "pytestmark", []))  # type: ignore[attr-defined]
    test.claim = claim  # type: ignore[attr-defined]
    return test


def with_subject(
    body: Callable[..., None], subject: Subject, arguments: dict[str, Any]
) -> dict[str, Any]:
    """``arguments`` of a claim's body, and ``subject`` where the body has that parameter."""
    named = "subject" in inspect.signature(body).parameters
    return {**arguments, "subject": subject} if named else dict(arguments)
