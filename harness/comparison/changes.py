"""A verdict that changed between two runs (`harness.comparison.judging` finds them)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from assay.harness.results.verdicts import UNTIL_BROKEN, Result, Verdict


class Flip(StrEnum):
    """What a changed verdict means."""

    REGRESSION = "regression"
    LOST = "lost"
    GAINED = "gained"
    OTHER = "other"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Search:
    """How a search for a counterexample ended.

    ``reach`` is the number of examples that upheld a law, or of the one that broke it; None where
    its details do not say.
    """

    verdict: Verdict
    reach: int | None

    @classmethod
    def of(cls, result: Result) -> Search:
        """The search behind a result."""
        refuted = result.verdict is Verdict.REFUTED
        reach = result.details.get(UNTIL_BROKEN) if refuted else result.examples
        return cls(result.verdict, reach)

    def ended_before(self, other: Search) -> bool:
        """Whether one of the two upheld a law on fewer examples than the other took to break it.

        Then there is no evidence that the verdict changed.
        """
        reach = {each.verdict: each.reach for each in (self, other)}
        upheld, broke = reach.get(Verdict.UPHELD), reach.get(Verdict.REFUTED)
        return upheld is not None and broke is not None and broke > upheld


def meaning(before: Verdict, after: Verdict, vanished: bool = False) -> Flip:
    """What a change from one verdict to the other means.

    A claim that was upheld or did not apply, both as expected of any model, and is now refuted has
    regressed; so has one that was upheld and no longer applies because a capability ``vanished``.
    One that was upheld and is now undecided is lost.
    """
    if after is Verdict.REFUTED:
        fine = before in (Verdict.UPHELD, Verdict.NOT_APPLICABLE)
        return Flip.REGRESSION if fine else Flip.OTHER
    if before is Verdict.UPHELD:
        return Flip.REGRESSION if vanished else Flip.LOST
    return Flip.GAINED if after is Verdict.UPHELD else Flip.OTHER
