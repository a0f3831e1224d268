"""A verdict that changed, between two runs or from one version to the next.

`harness.comparison.judging` finds the changes between two runs, `harness.report.atlas.flips` those
between neighbouring versions.
"""

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


class Repetition(StrEnum):
    """Whether a change was repeated with other examples."""

    ONCE = "not repeated"
    AGAIN = "seen again"
    NOT_AGAIN = "not seen again"


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """A claim on a subject whose verdict became ``verdict``.

    Between versions, ``before`` and ``after`` name them and ``setting`` is what both have in
    common, such as ``float32, cpu``; versions between the two, if any, do not decide the claim:
    it was not run there, does not apply, or is inconclusive.
    """

    subject: str
    name: str
    verdict: Verdict
    flip: Flip
    setting: str = ""
    before: str = ""
    after: str = ""
    repetition: Repetition = Repetition.ONCE


@dataclass(frozen=True, slots=True)
class Search:
    """How a search for a counterexample ended.

    ``reach`` is the number of examples that upheld a law, or of the one that broke it; None where
    older evidence does not say.  ``recorded`` is the time, in ISO 8601.
    """

    verdict: Verdict
    reach: int | None
    recorded: str = ""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Search:
        """The search behind a result in the evidence or in a report."""
        verdict, reach = Verdict(row["verdict"]), row.get("examples", 0)
        if verdict is Verdict.REFUTED:
            reach = (row.get("details") or {}).get(UNTIL_BROKEN)
        return cls(verdict, reach, row.get("recorded", ""))

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
