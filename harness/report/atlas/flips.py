"""Changed verdicts from one version to the next that decides the claim: upheld, then refuted.

A claim is decided by search, so two versions are compared by runs of the same profile and seed:
a longer search would only seem to show a worse version.  Nor has a verdict changed if the
search of the good version ended before the example that broke the bad one.  A change that a
repeat with other examples did not show is noise of the search and not a change of the library;
so is one whose good version was refuted by other examples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from assay.harness.comparison.changes import Repetition, Search, VerdictChange, meaning
from assay.harness.report.atlas.collect import Attempt, Collected
from assay.harness.results.verdicts import Verdict

DECIDED = (Verdict.UPHELD, Verdict.REFUTED)


def flips(collected: Collected) -> list[VerdictChange]:
    """Every change, by claim, subject and version, also those that repeats did not show."""
    lines: dict[tuple[str, str, str], dict[str, dict[Attempt, Search]]] = defaultdict(dict)
    for (setting, subject, name, version), tries in collected.tries.items():
        if any(each.verdict in DECIDED for each in tries.values()):
            lines[setting, subject, name][version] = tries
    versions = collected.versions
    changes = []
    for (setting, subject, name), by_version in sorted(lines.items()):
        verdicts = {each.verdict for tries in by_version.values() for each in tries.values()}
        if not verdicts.issuperset(DECIDED):
            continue
        present = [version for version in versions if version in by_version]
        for before, after in pairwise(present):
            if (turned := _turned(by_version[before], by_version[after])) is not None:
                verdict, again = turned
                flip = meaning(_other(verdict), verdict)
                where = setting, before, after
                changes.append(VerdictChange(subject, name, verdict, flip, *where, again))
    return changes


def standing(every: Iterable[VerdictChange]) -> list[VerdictChange]:
    """The changes without those that repeats did not show."""
    return [flip for flip in every if flip.repetition is not Repetition.NOT_AGAIN]


def _turned(
    before: dict[Attempt, Search], after: dict[Attempt, Search]
) -> tuple[Verdict, Repetition] | None:
    """The new verdict of a claim between two versions, and whether a repeat showed it; None if
    unchanged.
    """
    old, new = _decided(before), _decided(after)
    if not old.keys() & new.keys():
        return _apart(old, new)
    telling = {a for a in old.keys() & new.keys() if not old[a].ended_before(new[a])}
    shown = {a: new[a].verdict for a in telling if old[a].verdict is not new[a].verdict}
    if not shown:
        return None
    verdict = shown[max(shown)]
    good = old if verdict is Verdict.REFUTED else new
    agree = [attempt for attempt, each in shown.items() if each is verdict]
    if any(each.verdict is Verdict.REFUTED for each in good.values()):
        return verdict, Repetition.NOT_AGAIN
    # A repeat in which the law did not apply did not show the change either; an undecided one
    # says nothing, nor does a shorter search that finds nothing in both.
    both = before.keys() & after.keys()
    lost = {a for a in both if Verdict.NOT_APPLICABLE in (before[a].verdict, after[a].verdict)}
    denied = [a for a in telling | lost if a not in agree and a[0] >= max(agree)[0]]
    if len(agree) > max(1, len(denied)):  # or trying often enough would make a flip of anything
        return verdict, Repetition.AGAIN
    return verdict, Repetition.NOT_AGAIN if denied else Repetition.ONCE


def _decided(tries: dict[Attempt, Search]) -> dict[Attempt, Search]:
    return {attempt: each for attempt, each in tries.items() if each.verdict in DECIDED}


def _other(verdict: Verdict) -> Verdict:
    return Verdict.UPHELD if verdict is Verdict.REFUTED else Verdict.REFUTED


def _apart(
    before: dict[Attempt, Search], after: dict[Attempt, Search]
) -> tuple[Verdict, Repetition] | None:
    """As `_turned`, for versions without a common profile and seed.

    The upheld version must have been searched at least as long as the refuted one.
    """
    (deep, was), (deeper, now) = ((max(t)[0], t[max(t)].verdict) for t in (before, after))
    upheld, refuted = (deep, deeper) if was is Verdict.UPHELD else (deeper, deep)
    return (now, Repetition.ONCE) if was is not now and upheld >= refuted else None


@dataclass(frozen=True)
class Turn:
    """The flips of one claim between the same two versions, on all its subjects."""

    setting: str
    name: str
    before: str
    after: str
    verdict: Verdict
    flips: list[VerdictChange]

    @property
    def subjects(self) -> list[str]:
        """The models with these flips, in their order."""
        return [flip.subject for flip in self.flips]

    @property
    def words(self) -> str:
        """``last good 4.57.1, first bad 5.0.0``."""
        old, new = ("good", "bad") if self.verdict is Verdict.REFUTED else ("bad", "good")
        return f"last {old} {self.before}, first {new} {self.after}"

    @property
    def repeated(self) -> str:
        """On how many models repeats showed it: ``3 of 4 seen again``, or nothing if unknown."""
        counts = [
            (outcome, sum(f.repetition is outcome for f in self.flips)) for outcome in Repetition
        ]
        parts = [
            str(outcome) if count == len(self.flips) else f"{count} of {len(self.flips)} {outcome}"
            for outcome, count in counts
            if count and outcome is not Repetition.ONCE
        ]
        return ", ".join(parts)


def turns(every: Iterable[VerdictChange]) -> list[Turn]:
    """Flips grouped by claim and versions, those on the most subjects first."""
    groups: dict[tuple[str, str, str, str, Verdict], list[VerdictChange]] = defaultdict(list)
    for flip in every:
        key = flip.setting, flip.name, flip.before, flip.after, flip.verdict
        groups[key].append(flip)
    grouped = [Turn(*key, group) for key, group in groups.items()]
    return sorted(grouped, key=lambda turn: (-len(turn.flips), turn.name, turn.before))
