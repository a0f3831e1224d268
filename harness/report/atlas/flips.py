"""Changed verdicts from one version to the next that decides the claim: upheld, then refuted.

A claim is decided by search, so two versions are compared by runs of the same profile and seed:
one that was searched for longer would only seem to be worse.  Nor has a verdict changed if the
search of the good version ended before the example that broke the bad one.  A change that was
looked for again, with other examples, and not seen, is noise of the search and not of the library;
so is one whose good version was refuted by other examples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from assay.harness.comparison.changes import Search, Seen, VerdictChange, meaning
from assay.harness.report.atlas.collect import Attempt, Collected
from assay.harness.results.verdicts import Verdict

DECIDED = (Verdict.UPHELD, Verdict.REFUTED)


def flips(found: Collected) -> list[VerdictChange]:
    """Every change, by claim, subject and version, those that were not seen again included."""
    lines: dict[tuple[str, str, str], dict[str, dict[Attempt, Search]]] = defaultdict(dict)
    for (setting, subject, name, version), tries in found.tries.items():
        if any(each.verdict in DECIDED for each in tries.values()):
            lines[setting, subject, name][version] = tries
    versions = found.versions
    told = []
    for (setting, subject, name), tried in sorted(lines.items()):
        told_so = {each.verdict for tries in tried.values() for each in tries.values()}
        if not told_so.issuperset(DECIDED):
            continue
        seen = [version for version in versions if version in tried]
        for before, after in pairwise(seen):
            if (turned := _turned(tried[before], tried[after])) is not None:
                verdict, again = turned
                flip = meaning(_other(verdict), verdict)
                place = setting, before, after
                told.append(VerdictChange(subject, name, verdict, flip, *place, again))
    return told


def standing(every: Iterable[VerdictChange]) -> list[VerdictChange]:
    """The changes except those that were not seen again."""
    return [flip for flip in every if flip.seen is not Seen.NOT_AGAIN]


def _turned(
    before: dict[Attempt, Search], after: dict[Attempt, Search]
) -> tuple[Verdict, Seen] | None:
    """What a claim turned to between two versions, and whether it did so again; None if it is as
    it was.
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
        return verdict, Seen.NOT_AGAIN
    # A law that applies to some examples only was not met again either; an undecided one says
    # nothing, nor does a shorter look that finds nothing in both.
    both = before.keys() & after.keys()
    lost = {a for a in both if Verdict.NOT_APPLICABLE in (before[a].verdict, after[a].verdict)}
    denied = [a for a in telling | lost if a not in agree and a[0] >= max(agree)[0]]
    if len(agree) > max(1, len(denied)):  # or trying often enough would make a flip of anything
        return verdict, Seen.AGAIN
    return verdict, Seen.NOT_AGAIN if denied else Seen.ONCE


def _decided(tries: dict[Attempt, Search]) -> dict[Attempt, Search]:
    return {attempt: each for attempt, each in tries.items() if each.verdict in DECIDED}


def _other(verdict: Verdict) -> Verdict:
    return Verdict.UPHELD if verdict is Verdict.REFUTED else Verdict.REFUTED


def _apart(
    before: dict[Attempt, Search], after: dict[Attempt, Search]
) -> tuple[Verdict, Seen] | None:
    """As `_turned`, of versions that were never looked at in the same way.

    What was upheld must have been looked at no shorter than what was refuted.
    """
    (deep, was), (deeper, now) = ((max(t)[0], t[max(t)].verdict) for t in (before, after))
    upheld, refuted = (deep, deeper) if was is Verdict.UPHELD else (deeper, deep)
    return (now, Seen.ONCE) if was is not now and upheld >= refuted else None


@dataclass(frozen=True)
class Turn:
    """The flips of one claim between the same two versions, on all the subjects that have it."""

    setting: str
    name: str
    before: str
    after: str
    verdict: Verdict
    flips: list[VerdictChange]

    @property
    def subjects(self) -> list[str]:
        """The models that have it, in the order of the flips."""
        return [flip.subject for flip in self.flips]

    @property
    def words(self) -> str:
        """``last good 4.57.1, first bad 5.0.0``."""
        old, new = ("good", "bad") if self.verdict is Verdict.REFUTED else ("bad", "good")
        return f"last {old} {self.before}, first {new} {self.after}"

    @property
    def repeated(self) -> str:
        """On how many models it was seen again: ``3 of 4 seen again``, or nothing if unknown."""
        counts = [(seen, sum(flip.seen is seen for flip in self.flips)) for seen in Seen]
        told = [
            str(seen) if count == len(self.flips) else f"{count} of {len(self.flips)} {seen}"
            for seen, count in counts
            if count and seen is not Seen.ONCE
        ]
        return ", ".join(told)


def turns(every: Iterable[VerdictChange]) -> list[Turn]:
    """Flips put together, those on the most subjects first."""
    groups: dict[tuple[str, str, str, str, Verdict], list[VerdictChange]] = defaultdict(list)
    for flip in every:
        key = flip.setting, flip.name, flip.before, flip.after, flip.verdict
        groups[key].append(flip)
    made = [Turn(*key, group) for key, group in groups.items()]
    return sorted(made, key=lambda turn: (-len(turn.flips), turn.name, turn.before))
