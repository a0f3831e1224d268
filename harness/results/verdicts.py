"""Verdicts: numbers compared with a bound, and the record of the comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from assay.harness.results.arrays import Array, Plot, pack, unpack
from assay.harness.results.records import Counterexample


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


DECADES = 16.0
"""Margins are cut off at this many decades: an exact agreement has no finite one."""

UNTIL_BROKEN = "examples until it broke"
"""Key of a broken law's details: the number of the example that broke it, before shrinking."""

LEAK, LEAK_GOAL = "sees a leak of", "must see a leak of"
"""Keys of a law's details: relative sizes (`harness.checking.sensitivity`)."""

SEES_ONE = "sees one"
"""Key of the details of a law that counts: one error, how many were injected and seen."""

LEFT_OUT = "left out for the budget"
"""The key in a result's details that says what the claim had no time within: `BUDGET` or `LIMIT`;
true in older evidence.
"""

BUDGET, LIMIT = "budget", "limit"
"""The run's budget, which `--resume` gives again, and the profile's limit for findings about large
models.
"""

HIDDEN = "rounding hides smaller leaks"
"""Key of a law's details: true where in 16 bits it sees no leak as small as it must."""

NOT_REACHED = "not reached"
"""Key of a law's details: what no example reached, without which the law says nothing."""

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


@dataclass(frozen=True)
class Result:
    """One claim on one subject in one run: a row of the evidence and of the JSON.

    ``observed`` and ``bound`` are of the example with the least margin; ``margin`` is in decades
    (see `margin`); ``examples`` counts inputs tried and ``seconds`` their time.  ``reason`` says
    why a claim did not apply, was not decided, or is expected to differ.  ``counterexample`` is
    a broken law's.

    Of a finding ``observed`` is the statistic, ``interval`` where it lies with 95 % confidence,
    and ``margin`` how far the interval clears the bound in units of its half-width.  ``sample``
    keeps every series of draws by name, [draws] or [draws, columns], in the order of the draws:
    the same seed draws the same inputs, so runs can be paired.  ``plots`` are its pictures.
    The ``sample`` of a law that was not broken is the least ``margin`` of each example [examples].

    ``source`` is where the claim's sentence comes from (`harness.results.bibliography`); results
    of older evidence have none.
    """

    id: str
    name: str
    kind: Kind
    subject: str
    verdict: Verdict
    observed: float | None = None
    bound: float | None = None
    margin: float | None = None
    interval: tuple[float, float] | None = None
    examples: int = 0
    seconds: float = 0.0
    reason: str = ""
    counterexample: Counterexample | None = None
    details: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    sample: dict[str, Array] = field(default_factory=dict, compare=False)
    plots: tuple[Plot, ...] = field(default=(), compare=False)

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

    def as_json(self) -> dict[str, Any]:
        """Plain JSON types; numbers that are not finite become null, but not those of arrays."""
        row = {f.name: getattr(self, f.name) for f in fields(self)}
        row["counterexample"] = self.counterexample and self.counterexample.as_json()
        row["sample"] = {name: pack(series) for name, series in self.sample.items()}
        row["plots"] = [plot.as_json() for plot in self.plots]
        return {key: plain_json(value) for key, value in row.items()}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Result:
        """The inverse of `as_json`; keys of later versions are ignored."""
        known = {f.name for f in fields(cls)}
        values = {key: value for key, value in row.items() if key in known}
        values["kind"] = Kind(values["kind"])
        values["verdict"] = Verdict(values["verdict"])
        if values.get("interval") is not None:
            values["interval"] = tuple(values["interval"])
        if values.get("counterexample") is not None:
            values["counterexample"] = Counterexample.from_json(values["counterexample"])
        packed = values.get("sample") or {}
        values["sample"] = {name: unpack(series) for name, series in packed.items()}
        values["plots"] = tuple(map(Plot.from_json, values.get("plots") or ()))
        return cls(**values)


def plain_json(value: Any) -> Any:
    """``value`` in JSON's types: numbers that are not finite are null, enums their values."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, dict):
        return {key: plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    return value
