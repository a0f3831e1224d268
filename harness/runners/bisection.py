"""Bisection: the first version in which a verdict changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Verdict

Probe = Callable[[str, int], Mapping[str, tuple[Verdict, str]]]
"""(version, number of earlier runs) → verdict and reason of every test of the claim.

Raises `Untestable` for a version that cannot be tested.
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

    ``names`` are the tests that differ between the given versions; ``skipped`` are versions
    between ``last`` and ``first`` that could not be tested; ``doubts`` lists deciding versions
    whose verdict changed when repeated.
    """

    last: Step
    first: Step
    names: list[str]
    skipped: list[Step] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def bisect(
    versions: Sequence[str], good: str, bad: str, probe: Probe, report: Callable[[Step], None]
) -> Answer:
    """The first of ``versions``, which are in order, with the verdict of the later of the two.

    ``good`` and ``bad`` are among them, in either order: a claim can be broken or fixed.  The
    verdict is assumed to change once in between.  ``report`` is called for every version tried.
    Raises `BadInput` where the two do not differ.
    """
    names = _differing(good, bad, probe, report)
    between = Bisection(versions, names, probe, report)
    low, high = sorted((good, bad), key=versions.index)
    start = {good: Step(good, Verdict.UPHELD), bad: Step(bad, Verdict.REFUTED)}
    last, first = between.change(start[low], start[high])
    indices = range(versions.index(last.version) + 1, versions.index(first.version))
    skipped = [between.steps[versions[index]] for index in indices]
    return Answer(last, first, names, skipped, list(between.doubts(last, first)))


def _differing(good: str, bad: str, probe: Probe, report: Callable[[Step], None]) -> list[str]:
    """The claim's tests that are upheld at ``good`` and refuted at ``bad``."""
    outcomes = {}
    for version, role in ((bad, "bad"), (good, "good")):
        try:
            outcomes[version] = probe(version, 0)
        except Untestable as error:
            raise BadInput(f"{version}, given as {role}, cannot be tested: {error}") from error
        if not outcomes[version]:
            raise BadInput(f"{version}, given as {role}, cannot be tested: no claim was run")
    names = [
        name
        for name, (verdict, _) in outcomes[bad].items()
        if verdict is Verdict.REFUTED
        and name in outcomes[good]
        and outcomes[good][name][0] is Verdict.UPHELD
    ]
    if not names:
        raise BadInput(
            f"nothing is upheld at {good} and refuted at {bad}: "
            f"{good} has {_counts(outcomes[good])}; {bad} has {_counts(outcomes[bad])}"
        )
    report(Step(bad, Verdict.REFUTED, outcomes[bad][names[0]][1]))
    report(Step(good, Verdict.UPHELD))
    return names


def _counts(verdicts: Mapping[str, tuple[Verdict, str]]) -> str:
    """The number of tests by verdict; with the reason if there is only one."""
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
        report: Callable[[Step], None],
    ) -> None:
        self.versions, self.names, self.probe, self.report = versions, names, probe, report
        self.steps: dict[str, Step] = {}

    def change(self, low: Step, high: Step) -> tuple[Step, Step]:
        """The last version with ``low``'s verdict and the first with ``high``'s."""
        while (middle := self._middle(low.version, high.version)) is not None:
            if middle.verdict is low.verdict:
                low = middle
            else:
                high = middle
        return low, high

    def doubts(self, *deciding: Step) -> Iterator[str]:
        """Repeats the deciding versions; yields those whose verdict differs."""
        for step in deciding:
            again = self._try(step.version, 1)
            self.report(again)
            if again.verdict is not step.verdict:
                now = again.verdict.value if again.verdict else f"not testable ({again.why})"
                yield f"{step.version} was {_value(step)} and is {now} when repeated"

    def _middle(self, low: str, high: str) -> Step | None:
        """The decided version nearest to the middle; None where none is left in between."""
        first, end = self.versions.index(low) + 1, self.versions.index(high)
        middle = (first + end - 1) / 2
        for index in sorted(range(first, end), key=lambda p: (abs(p - middle), p)):
            version = self.versions[index]
            if version not in self.steps:
                self.steps[version] = self._try(version, 0)
                self.report(self.steps[version])
            if self.steps[version].verdict is not None:
                return self.steps[version]
        return None

    def _try(self, version: str, before: int) -> Step:
        """One verdict for all tests: refuted where one is, upheld where every one is."""
        try:
            outcomes = self.probe(version, before)
        except Untestable as error:
            return Step(version, None, str(error), bool(before))
        absent = (Verdict.NOT_APPLICABLE, "the test is not there")
        verdicts = [outcomes.get(name, absent) for name in self.names]
        for verdict, why in verdicts:
            if verdict is Verdict.REFUTED:
                return Step(version, verdict, why, bool(before))
        for verdict, why in verdicts:
            if verdict is not Verdict.UPHELD:
                return Step(version, None, f"{verdict.value}: {why}", bool(before))
        return Step(version, Verdict.UPHELD, "", bool(before))


def _value(step: Step) -> str:
    return step.verdict.value if step.verdict is not None else "not testable"
