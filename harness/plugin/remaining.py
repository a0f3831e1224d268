"""How long the rest of a run will take, from what its claims have taken so far.

Claims differ a hundredfold, so their number says little.  Recorded costs say how they compare
(`harness.checking.costs`), and the claims that have ended say how long the work takes here.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import NamedTuple

from assay.harness.checking import costs
from assay.harness.checking.claim import Claim
from assay.harness.checking.profiles import Profile
from assay.harness.results.verdicts import Result, Verdict

ENOUGH = 5
"""Claims that must have run before a time is shown."""

REFERENCE = 2.0
"""A token of the float64 reference takes about as long as so many of the model."""


class Work(NamedTuple):
    """What a claim takes by its recorded costs: tokens in passes, and seconds beside them."""

    tokens: float
    beside: float


def work(claim: Claim, name: str, profile: Profile) -> Work:
    """The work of a claim in this profile."""
    cost = costs.cost_of(name, claim.kind)
    examples = claim.examples(profile)
    tokens = cost.tokens + REFERENCE * cost.reference_tokens
    return Work(examples * tokens, examples * cost.other)


class Remaining:
    """What is left of a run: the work of its claims, by test."""

    def __init__(self, left: Mapping[str, Work]) -> None:
        self._left, self._done = dict(left), Work(0.0, 0.0)
        self._ended = self._ran = 0
        self._seconds, self._began = 0.0, 0.0

    def end(self, test: str, result: Result, now: float | None = None) -> None:
        """Count a claim that has ended, at ``now`` on the clock of `time.perf_counter`."""
        mine = self._left.pop(test, None)
        self._ended += 1
        if mine is None or result.verdict is Verdict.NOT_APPLICABLE:
            return
        if not self._ran:  # the model has been loaded by then
            self._began = (perf_counter() if now is None else now) - result.seconds
        self._ran += 1
        self._seconds += result.seconds
        self._done = Work(self._done.tokens + mine.tokens, self._done.beside + mine.beside)

    def seconds(self, now: float | None = None) -> float | None:
        """The seconds that are left; None while too little has run to say."""
        if self._ran < ENOUGH or not self._seconds:
            return None
        tokens, beside = self._done
        # Passes take what the recorded seconds beside them do not explain.
        each = max(0.0, self._seconds - beside) / max(tokens, 1.0)
        scale = self._seconds / max(each * tokens + beside, 1e-9)
        rest = scale * sum(each * mine.tokens + mine.beside for mine in self._left.values())
        elapsed = (perf_counter() if now is None else now) - self._began
        at_once = max(1.0, self._seconds / max(elapsed, 1e-9))  # processes that were busy
        return rest / at_once * self._ran / self._ended
