"""Flips: a claim that is upheld in one version and refuted in the next that decides it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from harness.atlas.collect import Collected
from harness.verdicts import Verdict

DECIDED = (Verdict.UPHELD, Verdict.REFUTED)


@dataclass(frozen=True, slots=True)
class Flip:
    """Between two versions, ``before`` and ``after``, the verdict turned to ``verdict``.

    Versions between them, if any, have not decided the claim: it was not run there, does not
    apply, or is inconclusive.
    """

    setting: str
    subject: str
    name: str
    before: str
    after: str
    verdict: Verdict


def flips(found: Collected) -> list[Flip]:
    """Every flip, by claim, subject and version."""
    lines: dict[tuple[str, str, str], dict[str, Verdict]] = defaultdict(dict)
    for (setting, subject, name, version), cell in found.cells.items():
        if cell.result.verdict in DECIDED:
            lines[setting, subject, name][version] = cell.result.verdict
    versions = found.versions
    told = []
    for (setting, subject, name), verdicts in sorted(lines.items()):
        if len(set(verdicts.values())) < 2:
            continue
        seen = [version for version in versions if version in verdicts]
        for before, after in pairwise(seen):
            if verdicts[before] is not verdicts[after]:
                told.append(Flip(setting, subject, name, before, after, verdicts[after]))
    return told


@dataclass(frozen=True)
class Turn:
    """The flips of one claim between the same two versions, on all the subjects that have it."""

    setting: str
    name: str
    before: str
    after: str
    verdict: Verdict
    subjects: list[str]

    @property
    def words(self) -> str:
        """``last good 4.57.1, first bad 5.0.0``."""
        old, new = ("good", "bad") if self.verdict is Verdict.REFUTED else ("bad", "good")
        return f"last {old} {self.before}, first {new} {self.after}"


def turns(every: list[Flip]) -> list[Turn]:
    """Flips put together, those on the most subjects first."""
    groups: dict[tuple[str, str, str, str, Verdict], list[str]] = defaultdict(list)
    for flip in every:
        key = flip.setting, flip.name, flip.before, flip.after, flip.verdict
        groups[key].append(flip.subject)
    made = [Turn(*key, subjects) for key, subjects in groups.items()]
    return sorted(made, key=lambda turn: (-len(turn.subjects), turn.name, turn.before))
