"""Laws for two passes of one shape, which differ by no more than two equal runs do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.harness.checking import sensitivity
from assay.harness.checking.check import Check
from assay.harness.checking.comparing import Unsettled, beyond
from assay.harness.models.reference import precision
from assay.harness.models.reference.tolerances import EQUAL_RUNS, Distance, farthest
from assay.harness.models.subject import Subject, shapes
from assay.harness.models.subject.rows import Rows
from assay.harness.results.verdicts import margin

MORE_RUNS = 4
"""Further equal runs before two passes of one shape count as different: chance may do that."""


def same(
    check: Check,
    first: Rows,
    again: Callable[[], Rows],
    observed: Rows,
    same_tokens: bool = False,
    where: str = "two passes of one shape",
) -> None:
    """The law: ``observed`` equals two equal runs, ``first`` and ``again()``, as they each other.

    Does nothing where the shapes inside a pass depend on the tokens (`models.subject.shapes`),
    unless all passes are of the ``same_tokens``.
    """
    __tracebackhide__ = True
    if not same_tokens and shapes.depend_on_tokens(check.subject):
        return
    names = [name for name in first.tensors if name in observed.tensors]
    if not names:
        raise Unsettled("the two passes give no tensor of the same name")
    first, observed = first.only(*names), observed.only(*names)
    runs = _Runs(check.subject, first, check.record.noise)
    for _ in range(1 + MORE_RUNS):
        runs.add(again())
        worst, allowed = runs.worst(observed)
        if not beyond(worst.error, allowed):
            break
    check.record.detection.one_shape = True
    check.record.example.smallest_leak = runs.smallest_leak
    check.judge(worst.error, allowed, f"{worst.where}, {where}")


def rejects(check: Check, first: Rows, damaged: Rows) -> None:
    """A control of `same`, after it: ``damaged`` rows differ from the ``first``."""
    runs = _Runs(check.subject, first, check.record.noise)
    worst, allowed = runs.worst(damaged)
    check.judge_control(worst.error, allowed)
    check.record.detection.add(runs.smallest_leak(damaged))


@dataclass
class _Runs:
    """Equal runs of ``subject``: the ``first``, and the ``noise`` between all so far by tensor."""

    subject: Subject
    first: Rows
    noise: dict[str, float]

    def add(self, again: Rows) -> None:
        """Keep the largest difference between two equal runs, by tensor."""
        for name, apart in farthest(again.only(*self.first.tensors), self.first).items():
            self.noise[name] = max(self.noise.get(name, 0.0), apart.error)

    def worst(self, observed: Rows) -> tuple[Distance, float]:
        """The distance of ``observed`` from the first with the least margin, and its bound."""
        bound = EQUAL_RUNS[precision.working(self.subject)]
        pairs = [
            (apart, bound.allowed(self.noise.get(name, 0.0)))
            for name, apart in farthest(observed, self.first).items()
        ]
        return min(pairs, key=lambda pair: margin(pair[0].error, pair[1]))

    def smallest_leak(self, damaged: Rows) -> float:
        """The smallest leak towards the ``damaged`` rows that is rejected in the first."""

        def rejects(rows: Rows) -> bool:
            worst, allowed = self.worst(rows)
            return beyond(worst.error, allowed)

        return sensitivity.smallest_leak(self.first, damaged, rejects)
