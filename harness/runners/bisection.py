"""Bisection: the first version in which a verdict changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Verdict

DECIDED = (Verdict.UPHELD, Verdict.REFUTED)

Probe = Callable[[str, int], Mapping[str, tuple[Verdict, str]]]
"""(version, how often it was run before) → verdict and reason of every test of the claim.

Raises `Untestable` for a version of which nothing can be said.
"""


class Untestable(Exception):
    """A version that cannot be installed, or in which the claim is not decided, and why."""


@dataclass(frozen=True)
class Step:
    """One version and its verdict; None if the claim is not decided, for the reason ``why``."""

    version: str
    verdict: Verdict | None
    why: str = ""
    again: bool = False


@dataclass
class Answer:
    """Where a claim changed: upheld or refuted at ``last``, the other way round from ``first`` on.

    ``names`` are the tests that differ between the versions given; ``skipped`` are versions that
    stand between ``last`` and ``first`` and could not be tested; ``doubts`` says which deciding
    version came out otherwise when it was repeated.
    """

    last: Step
    first: Step
    names: list[str]
    skipped: list[Step] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def bisect(
    versions: Sequence[str], good: str, bad: str, probe: Probe, tell: Callable[[Step], None]
) -> Answer:
    """The first of ``versions``, which are in order, with the verdict of the later of the two.

    ``good`` and ``bad`` are among them, in either order: a claim can be broken or fixed.  The
    verdict is assumed to change once in between.  ``tell`` is called for every version tried.
    Raises `BadInput` where the two do not differ.
    """
    names = _differing(good, bad, probe, tell)
    between = Bisection(versions, names, probe, tell)
    low, high = sorted((good, bad), key=versions.index)
    start = {good: Step(good, Verdict.UPHELD), bad: Step(bad, Verdict.REFUTED)}
    last, first = between.change(start[low], start[high])
    places = range(versions.index(last.version) + 1, versions.index(first.version))
    skipped = [between.known[versions[place]] for place in places]
    return Answer(last, first, names, skipped, list(between.doubts(last, first)))


def _differing(good: str, bad: str, probe: Probe, tell: Callable[[Step], None]) -> list[str]:
    """The claim's tests that are upheld at ``good`` and refuted at ``bad``."""
    found = {}
    for version, role in ((bad, "bad"), (good, "good")):
        try:
            found[version] = probe(version, 0)
        except Untestable as error:
            raise BadInput(f"{version}, given as {role}, cannot be tested: {error}") from error
        if not found[version]:
            raise BadInput(f"{version}, given as {role}, cannot be tested: no claim was run")
    names = [
        name
        for name, (verdict, _) in found[bad].items()
        if verdict is Verdict.REFUTED
        and name in found[good]
        and found[good][name][0] is Verdict.UPHELD
    ]
    if not names:
        raise BadInput(
            f"nothing is upheld at {good} and refuted at {bad}: "
            f"{good} has {_counts(found[good])}; {bad} has {_counts(found[bad])}"
        )
    tell(Step(bad, Verdict.REFUTED, found[bad][names[0]][1]))
    tell(Step(good, Verdict.UPHELD))
    return names


def _counts(verdicts: Mapping[str, tuple[Verdict, str]]) -> str:
    """How many tests have which verdict; of a single one, why."""
    counts = Counter(verdict.value for verdict, _ in verdicts.values())
    listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    reasons = {why for _, why in verdicts.values() if why}
    return f"{listed} ({reasons.pop()})" if len(reasons) == 1 else listed


class Bisection:
    """Tries versions, each once, until two neighbours differ."""

    def __init__(
        self,
        versions: Sequence[str],
        names: Sequence[str],
        probe: Probe,
        tell: Callable[[Step], None],
    ) -> None:
        self.versions, self.names, self.probe, self.tell = versions, names, probe, tell
        self.known: dict[str, Step] = {}

    def change(self, low: Step, high: Step) -> tuple[Step, Step]:
        """The last version with ``low``'s verdict and the first with ``high``'s."""
        while (middle := self._middle(low.version, high.version)) is not None:
            if middle.verdict is low.verdict:
                low = middle
            else:
                high = middle
        return low, high

    def doubts(self, *deciding: Step) -> Iterator[str]:
        """The deciding versions, each once more: which come out otherwise."""
        for step in deciding:
            again = self._try(step.version, 1)
            self.tell(again)
            if again.verdict is not step.verdict:
                now = again.verdict.value if again.verdict else f"not testable ({again.why})"
                yield f"{step.version} was {_value(step)} and is {now} when repeated"

    def _middle(self, low: str, high: str) -> Step | None:
        """The decided version nearest to the middle; None where none is left between."""
        first, end = self.versions.index(low) + 1, self.versions.index(high)
        middle = (first + end - 1) / 2
        for place in sorted(range(first, end), key=lambda p: (abs(p - middle), p)):
            version = self.versions[place]
            if version not in self.known:
                self.known[version] = self._try(version, 0)
                self.tell(self.known[version])
            if self.known[version].verdict is not None:
                return self.known[version]
        return None

    def _try(self, version: str, before: int) -> Step:
        """One verdict for all tests: refuted where one is, upheld where every one is."""
        try:
            found = self.probe(version, before)
        except Untestable as error:
            return Step(version, None, str(error), bool(before))
        absent = (Verdict.NOT_APPLICABLE, "the test is not there")
        of = [found.get(name, absent) for name in self.names]
        for verdict, why in of:
            if verdict is Verdict.REFUTED:
                return Step(version, verdict, why, bool(before))
        for verdict, why in of:
            if verdict is not Verdict.UPHELD:
                return Step(version, None, f"{verdict.value}: {why}", bool(before))
        return Step(version, Verdict.UPHELD, "", bool(before))


def _value(step: Step) -> str:
    return step.verdict.value if step.verdict is not None else "not testable"
