"""Two runs compared: changed verdicts, drifts of numbers, and what else differs.

A flip needs no statistics: the verdicts already have them.  But of two runs of different profiles
one may have upheld a law only because it tried fewer examples than it took to break it in the
other: such a flip says nothing about the difference between the runs, and is called unseen.

There is a test for each pair of numbers, so the p-values are adjusted after Benjamini and
Hochberg: the false-discovery rate of the reported drifts is 5 %.  (Holm's method would
keep the chance of even one wrong drift at that, and miss most small ones among thousands; a drift
fails nothing, it is a reason to look.)  The intervals are those of Benjamini and Yekutieli that
belong to it: at 1 - 0.05 r / m for r real drifts among m tests, so that a drift is real where its
interval leaves out 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from scipy import stats

from assay.harness.checking.statistics import EVERY, Pair, Statistic
from assay.harness.comparison import shifts, token_changes
from assay.harness.comparison.changes import Flip, Search, meaning
from assay.harness.comparison.shifts import Shift
from assay.harness.comparison.sides import Key, Side
from assay.harness.comparison.token_changes import TokenChange
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Kind, Result, Verdict

ERROR = 0.05
"""The false-discovery rate of the reported drifts."""

LEAST = 0.1
"""Least size of a reported drift: decades of a law, spreads of one draw of a finding."""

OWN = ("id", "started", "finished", "exit", "subjects", "versions")
"""Fields of a run that are not settings."""


@dataclass(frozen=True)
class Compared:
    """One claim on one subject in both runs.

    ``paired`` says whether both drew the same inputs in the same order; ``vanished`` names the
    capability that the model no longer has, if the claim does not apply for want of it.
    ``shift`` is None where neither run kept a sample, or the samples are of different
    quantities; ``adjusted`` is its adjusted p-value, ``interval`` its corrected interval.
    """

    key: Key
    before: Result
    after: Result
    paired: bool = True
    vanished: str = ""
    shift: Shift | None = None
    adjusted: float = 1.0
    interval: Pair | None = None

    @property
    def law(self) -> bool:
        """Whether the claim is a law; else it is a finding."""
        return self.after.kind is Kind.LAW

    @property
    def real(self) -> bool:
        """Whether the number moved significantly, corrected for how many were tested."""
        return self.shift is not None and self.shift.shift != 0 and self.adjusted <= ERROR

    def drifted(self, least: float) -> bool:
        """Whether it moved significantly, and by at least ``least``."""
        return self.real and self.shift is not None and self.shift.size >= least

    @property
    def unjudged(self) -> bool:
        """Whether its number changed, and there is no sample to judge it by."""
        return self.shift is None and self.flip is None and self.moved != 0

    @property
    def moved(self) -> float:
        """By how much the reported number grew: a law's margin, a finding's statistic."""
        one, other = (
            row.margin if self.law else row.observed for row in (self.before, self.after)
        )
        return 0.0 if one is None or other is None else other - one

    @property
    def flip(self) -> Flip | None:
        """What the changed verdict means; None if it is the same.

        One that was upheld on fewer examples than it took to break it in the other run is unseen.
        """
        before, after = Search.of(self.before), Search.of(self.after)
        if before.verdict is after.verdict:
            return None
        unseen = self.law and self.paired and before.ended_before(after)
        flip = meaning(before.verdict, after.verdict, bool(self.vanished))
        return Flip.UNSEEN if unseen else flip

    @property
    def restated(self) -> tuple[str, str] | None:
        """The statement of the claim in both runs, where they differ."""
        one, other = (row.details.get("claimed", "") for row in (self.before, self.after))
        return None if one == other else (one, other)


@dataclass(frozen=True)
class Comparison:
    """Two runs: every claim that both have, and what only one of them has.

    ``paired`` says whether both drew the same inputs; ``judged`` is the number of shifts, and
    ``confidence`` that of their intervals.
    """

    before: Side
    after: Side
    claims: tuple[Compared, ...]
    paired: bool
    judged: int
    confidence: float
    changed: Mapping[str, tuple[Any, Any]]

    def flips(self, kind: Flip) -> list[Compared]:
        """The claims whose verdict changed in this way."""
        return [each for each in self.claims if each.flip is kind]

    def drifts(self, least: float) -> list[Compared]:
        """Significant moves of at least ``least`` under the same verdict, farthest first."""
        drifts = [each for each in self.claims if each.flip is None and each.drifted(least)]
        return sorted(drifts, key=lambda each: -each.shift.size if each.shift else 0.0)

    @cached_property
    def token_changes(self) -> list[TokenChange]:
        """Models whose tokenizers give the fixed text of H4 other ids."""
        return token_changes.changes(self.before, self.after)

    @property
    def worse(self) -> bool:
        """Whether something regressed: a verdict or a capability, or the ids of a text."""
        return bool(self.flips(Flip.REGRESSION) or self.token_changes)

    @property
    def gone(self) -> list[Key]:
        """Claims on models of both runs that only the first has."""
        return _missing(self.before, self.after)

    @property
    def new(self) -> list[Key]:
        """Claims on models of both runs that only the second has."""
        return _missing(self.after, self.before)

    @property
    def gone_subjects(self) -> list[str]:
        """Models that only the first run has results on."""
        return [name for name in self.before.subjects if name not in self.after.subjects]

    @property
    def new_subjects(self) -> list[str]:
        """Models that only the second run has results on."""
        return [name for name in self.after.subjects if name not in self.before.subjects]

    @property
    def other_weights(self) -> list[str]:
        """Models of both runs whose configuration or weights are others."""
        both = [name for name in self.after.subjects if name in self.before.subjects]
        return [name for name in both if self.before.digest(name) != self.after.digest(name)]


def _missing(one: Side, other: Side) -> list[Key]:
    subjects = set(other.subjects)
    return [key for key in one.rows if key not in other.rows and key[2] in subjects]


def compare(
    before: Side, after: Side, any_seed: bool = False, any_profile: bool = False
) -> Comparison:
    """Compare ``after`` with ``before``; raises `BadInput` where that makes no sense.

    Runs of two seeds or profiles are compared only with ``any_seed`` or ``any_profile``.
    """
    common = [key for key in before.rows if key in after.rows]
    if not common:
        raise BadInput(_apart(before, after))
    for name, flag, allowed in (
        ("seed", "--any-seed", any_seed),
        ("profile", "--any-profile", any_profile),
    ):
        one, other = getattr(before.run, name), getattr(after.run, name)
        if one != other and not allowed:
            raise BadInput(f"the runs have {name} {one} and {other}; compare them with {flag}")
    paired = before.run.seed == after.run.seed
    claims = [
        Compared(
            *(key, before.rows[key], after.rows[key], paired),
            vanished=_vanished(before, after, key),
            shift=_shift(before, after, key, paired),
        )
        for key in common
    ]
    judged, confidence = _judged(claims)
    return Comparison(
        before, after, tuple(judged), paired, _tests(claims), confidence, _changed(before, after)
    )


def _apart(before: Side, after: Side) -> str:
    """Why two runs have nothing in common."""
    if set(before.subjects) & set(after.subjects):
        return f"{before.name} and {after.name} have no claim on the same model in common"
    models = (f"{each.name} has {_some([*each.subjects])}" for each in (before, after))
    return f"the runs have no model in common: {', '.join(models)}"


def _some(names: Sequence[str], most: int = 3) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return " and ".join(names[:most]) + rest if not rest else ", ".join(names[:most]) + rest


def _vanished(before: Side, after: Side, key: Key) -> str:
    """The capability for want of which a claim that was upheld no longer applies.

    Empty where no capability was lost: the second run cannot build the model, or has another
    reason.
    """
    verdicts = [side.rows[key].verdict for side in (before, after)]
    if verdicts != [Verdict.UPHELD, Verdict.NOT_APPLICABLE]:
        return ""
    named = after.rows[key].capability
    lost = after.missing(key[2]).keys() - before.missing(key[2]).keys()
    return named if named in lost else ""


def _shift(before: Side, after: Side, key: Key, paired: bool) -> Shift | None:
    """How far the claim's number moved; None without samples of the same quantity."""
    one, other = before.rows[key], after.rows[key]
    law = other.kind is Kind.LAW
    name = "margin" if law else "effect"
    old, new = (row.sample.get(name) for row in (one, other))
    if old is None or new is None or one.kind is not other.kind or old.ndim != new.ndim:
        return None
    if np.array_equal(old, new, equal_nan=True):
        return Shift(0.0, 1.0, lambda error: (0.0, 0.0), len(old), paired)
    if law:
        return shifts.of_margins(old, new, paired)
    statistic = statistic_of(other)
    if statistic is None or statistic is not statistic_of(one):
        return None
    return shifts.between(statistic, old, new, paired)


def statistic_of(row: Result) -> Statistic | None:
    """The statistic of a finding, read from its statement, such as ``share ≥ 0.9``."""
    claimed = str(row.details.get("claimed", ""))
    return next((each for name, each in EVERY.items() if claimed.startswith(f"{name} ")), None)


def _tests(claims: Sequence[Compared]) -> int:
    return sum(each.shift is not None for each in claims)


def _judged(claims: Sequence[Compared]) -> tuple[list[Compared], float]:
    """The claims with adjusted p-values and intervals, and the intervals' confidence."""
    values = [each.shift.p for each in claims if each.shift is not None]
    if not values:
        return list(claims), 1 - ERROR
    adjusted = iter(stats.false_discovery_control(np.array(values), method="bh"))
    adjusted_claims = [
        each if each.shift is None else replace(each, adjusted=float(next(adjusted)))
        for each in claims
    ]
    error = ERROR * max(1, sum(each.adjusted <= ERROR for each in adjusted_claims)) / len(values)
    judged = [
        each if each.shift is None else replace(each, interval=each.shift.interval(error))
        for each in adjusted_claims
    ]
    return judged, 1 - error


def _changed(before: Side, after: Side) -> dict[str, tuple[Any, Any]]:
    """Settings and versions that differ, by name: before and after."""
    settings_of = []
    for each in (before, after):
        run = msgspec.to_builtins(each.run)
        settings = {name: value for name, value in run.items() if name not in OWN}
        settings_of.append({**settings, **each.run.versions})
    names = list(dict.fromkeys([*settings_of[0], *settings_of[1]]))
    pairs = {name: (settings_of[0].get(name), settings_of[1].get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
