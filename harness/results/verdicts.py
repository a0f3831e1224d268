"""Verdicts: numbers compared with a bound, and the record of the comparison."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import numpy as np
from msgspec import field
from msgspec.structs import astuple

from assay.harness.results.arrays import Array, Plot
from assay.harness.results.encoding import FrozenRecord, Record


class Verdict(StrEnum):
    """The verdict of a claim on one subject."""

    UPHELD = "upheld"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"


class Kind(StrEnum):
    """A law follows from the architecture; a finding is about particular weights."""

    LAW = "law"
    FINDING = "finding"


def is_about_engines(needs: Iterable[str]) -> bool:
    """Whether a claim that needs these capabilities is about what serves a model."""
    return any(name.startswith("engine-") for name in needs)


DECADES = 16.0
"""Margins are cut off at this many decades: an exact agreement has no finite one."""

UNTIL_BROKEN = "examples until it broke"
"""Key of a broken law's details: the number of the example that broke it, before shrinking."""

LEAK, LEAK_GOAL = "sees a leak of", "must see a leak of"
"""Keys of a law's details: relative sizes (`harness.checking.sensitivity`)."""

SEES_ONE = "sees one"
"""Key of the details of a law that counts: one error, how many were injected and seen."""

LEFT_OUT = "left out for the budget"
"""The key in a result's details that says what left the claim no time: `BUDGET` or `LIMIT`."""

BUDGET, LIMIT = "budget", "limit"
"""The run's budget, which `--resume` gives again, and the profile's limit for findings about large
models.
"""

HIDDEN = "rounding hides smaller leaks"
"""Key of a law's details: true where in 16 bits it sees no leak as small as it must."""

NOT_REACHED = "not reached"
"""Key of a law's details: what no example reached, without which the law says nothing."""

DECIDED_ON, WHOLE = "decided on", "the whole model"
"""Key of the details of a law about a large model, and its value where that was no slice."""

UNAVAILABLE = "unavailable here"
"""Key of the details of a claim that does not apply: true where the model is not the reason, but
the machine, a package or an option.
"""

PASSED, NOT_PASSED = "lengths passed", "lengths not passed"
"""Keys of a law's details: windows, chunks and rotations of the model, by name, in tokens."""

STORED = 20_000
"""Characters of a traceback that are kept."""

ERROR = "traceback"
"""Key of the details of a claim that an error ended: where it was raised."""

BOUND = "judged by"
"""Key of a law's details: the bounds that its comparisons are judged by."""


def number_order(id: str) -> list[str | int]:
    """A sort key of claims' numbers, by which A2 comes before A10."""
    parts = re.split(r"(\d+)", id, flags=re.ASCII)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]


def margin(observed: float, bound: float) -> float:
    """Decades between the observed number and its bound: positive when ``observed`` is below.

    ``log10(bound / observed)``, within ± ``DECADES``; 0 is at the bound, an exact agreement is
    ``DECADES``.  An ``observed`` that is not finite is ``DECADES`` beyond the bound.
    """
    if not math.isfinite(observed):
        return -DECADES
    if observed <= 0.0:
        return DECADES
    ratio = bound / observed
    return max(-DECADES, min(DECADES, math.log10(ratio))) if ratio > 0.0 else -DECADES


class Counterexample(Record):
    """The smallest example found on which a law does not hold.

    ``inputs`` are the draws as text, by label; ``cause`` is what breaks the law, where the example
    tells; ``blob`` is the example as ``--replay`` takes it, None where the command ``replay`` has
    it.
    """

    inputs: dict[str, str] = field(default_factory=dict)
    observed: float | None = None
    allowed: float | None = None
    where: str = ""
    cause: str = ""
    blob: str | None = None
    replay: str = ""

    @property
    def lines(self) -> list[str]:
        """What breaks the law, the drawn inputs, the numbers, and where they were observed."""
        drawn = [f"{label}: {value}" for label, value in self.inputs.items()]
        return [
            *filter(None, [self.cause]),
            *drawn,
            f"observed {self.observed}, allowed {self.allowed}, at {self.where}",
        ]


class Foreseen(FrozenRecord, frozen=True):
    """What says that a claim comes to its verdict: the words of a file of expectations, and the
    defect of the library that is the reason, by its script in docs/defects.
    """

    reason: str = ""
    defect: str = ""


class Claim(FrozenRecord, frozen=True):
    """One claim on one subject; docs/schema.md says what each key means."""

    id: str
    name: str
    kind: Kind
    subject: str
    verdict: Verdict
    observed: float | None = None
    bound: float | None = None
    margin: float | None = None
    interval: tuple[float | None, float | None] | None = None
    examples: int = 0
    seconds: float = 0.0
    reason: str = ""
    counterexample: Counterexample | None = None
    details: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    expected: Foreseen | None = None


def _plain(value: Any) -> Any:
    """``value`` with arrays as their shapes and bytes, which compare as a whole."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


class Result(Claim, frozen=True, eq=False):
    """One claim on one subject in one run: a row of the evidence.

    ``sample`` keeps every series of draws by name, [draws] or [draws, columns], in the order of
    the draws: the same seed draws the same inputs, so runs can be paired.  ``plots`` are its
    pictures.  The ``sample`` of a law that was not broken is the least ``margin`` of each example
    [examples].
    """

    sample: dict[str, Array] = field(default_factory=dict)
    plots: tuple[Plot, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Whether the claims are equal, and the arrays of samples and pictures to the bit."""
        if not isinstance(other, Result):
            return NotImplemented
        return (self.claim, self._arrays) == (other.claim, other._arrays)

    __hash__ = None  # type: ignore[assignment]  # its details are a dict

    @property
    def _arrays(self) -> list[object]:
        return [_plain(self.sample), *(_plain(astuple(plot)) for plot in self.plots)]

    @property
    def rounding_hides(self) -> bool:
        """Whether a law in 16 bits is undecided only because it sees no leak as small as it must.

        Rounding alone may move a sound model by more; neither model nor budget is at fault.
        """
        undecided = self.kind is Kind.LAW and self.verdict is Verdict.INCONCLUSIVE
        return undecided and bool(self.details.get(HIDDEN))

    @property
    def not_reached(self) -> bool:
        """Whether a law is undecided since no prompt was long enough for what it is about."""
        return self.verdict is Verdict.INCONCLUSIVE and NOT_REACHED in self.details

    @property
    def capability(self) -> str:
        """The capability for want of which the claim does not apply; empty where it does."""
        absent = self.verdict is Verdict.NOT_APPLICABLE
        return self.reason.partition(":")[0] if absent else ""

    @property
    def unavailable(self) -> bool:
        """Whether the claim cannot be checked here, and the model is not the reason."""
        return self.verdict is Verdict.NOT_APPLICABLE and bool(self.details.get(UNAVAILABLE))

    @property
    def left_out(self) -> bool:
        """Whether the claim had no time, or not enough (`LEFT_OUT`)."""
        return self.verdict is Verdict.INCONCLUSIVE and bool(self.details.get(LEFT_OUT))

    @property
    def awaits_resuming(self) -> bool:
        """Whether the run's budget was used up before the claim was examined."""
        return self.left_out and self.details[LEFT_OUT] == BUDGET

    @property
    def ended_in_error(self) -> bool:
        """Whether the claim ended in an error that is not about the machine."""
        return self.verdict is Verdict.INCONCLUSIVE and ERROR in self.details

    @property
    def claim(self) -> Claim:
        """The result without its arrays, as the JSON report has it."""
        return Claim(*(getattr(self, name) for name in Claim.__struct_fields__))
