"""A verdict that changed between two runs (`harness.comparison.judging` finds them)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from assay.harness.results.verdicts import UNTIL_BROKEN, Verdict


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
    older evidence does not say.
    """

    verdict: Verdict
    reach: int | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Search:
        """The search behind a result in the evidence or in a report."""
        verdict, reach = Verdict(row["verdict"]), row.get("examples", 0)
        if verdict is Verdict.REFUTED:
            reach = (row.get("details") or {}).get(UNTIL_BROKEN)
        return cls(verdict, reach)

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
