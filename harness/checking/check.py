"""Compares a law's observations with the float64 reference; keeps the worst case and control."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.harness.checking import sensitivity
from assay.harness.checking.comparing import Comparison, Unsettled, beyond, shared
from assay.harness.checking.controls import Controls
from assay.harness.checking.reference import Reference, run_both
from assay.harness.models.reference import precision
from assay.harness.models.reference.tolerances import (
    EQUAL_RUNS,
    TOLERANCES,
    Distance,
    Tolerance,
    farthest,
    incomparable,
)
from assay.harness.models.subject import Subject
from assay.harness.models.subject.rows import Rows
from assay.harness.results.verdicts import LEAK, LEAK_GOAL, SEES_ONE, margin

NOT_NUMBERS = "rows with NaN on both sides"
"""Key in a law's details: how many rows could not be compared in full, over all examples."""

BY_16_BITS = "rows left out, which the rounding of 16 bits moves too far"
"""Key in a law's details: how many rows said nothing (`Reference.settled`), over all examples."""

LOOKS = 24
"""How often a law is searched for its smallest visible leak, at most."""

MORE_RUNS = 4
"""Further equal runs before two passes of one shape count as different: chance may do that."""


class Broken(AssertionError):
    """A law does not hold on an example: what was observed, what is allowed, and where."""

    def __init__(self, observed: float, allowed: float, where: str) -> None:
        super().__init__(f"observed {observed:.3g}, allowed {allowed:.3g}, at {where}")
        self.observed, self.allowed, self.where = observed, allowed, where


@dataclass
class Check:
    """Compares, judges and remembers the worst case over all examples of one law."""

    subject: Subject
    observed: float = 0.0
    allowed: float = 1.0
    compared: int = 0
    controls: Controls = field(default_factory=Controls)
    details: dict[str, Any] = field(default_factory=dict)
    margins: list[float] = field(default_factory=list)
    leak: float | None = None
    """The smallest leak, relative to a row, that a comparison of this law detected; None: not
    tried."""
    tokens: int = 0
    """Tokens of the longest prompt that was compared."""
    at_edges: bool = False
    """Whether the law's prompts are to pass the model's windows and chunks."""
    reached: dict[str, bool] = field(default_factory=dict)
    """What an example has to reach for the law to say anything, and whether one did."""
    shared: bool = False
    """Whether the example is of a prompt that laws share."""
    in_half: bool = False
    """Whether the law is about 16 bits, in a model of any dtype."""
    _room: float = math.inf
    _worst: float = margin(0.0, 1.0)

    _equal: Rows | None = None
    _one_shape: bool = False
    _by_reference: bool = False
    _emulated: bool = False
    _looks: int = 0
    _goal: float | None = None
    _noise: dict[str, float] = field(default_factory=dict)
    _least_noise: float = math.inf

    @property
    def tolerance(self) -> Tolerance:
        """What the subject's dtype allows."""
        return TOLERANCES[precision.working(self.subject)]

    @property
    def wide(self) -> bool:
        """Whether emulated rounding is like a machine's: it moves 16-bit results far more."""
        return precision.working(self.subject) in (torch.float32, torch.float64)

    def gap(self, tolerance: Tolerance | None) -> float:
        """Experts chosen by less are near-tied."""
        return self._comparison(tolerance).gap

    def _comparison(self, tolerance: Tolerance | None) -> Comparison:
        tolerance = tolerance or self.tolerance
        return Comparison(tolerance, self.subject.dtype, self.wide, self._emulated)

    def reference(self, plain: Callable[[Subject], Rows]) -> Reference:
        """Run the plain path on the subject and on its float64 reference copy."""
        return run_both(self.subject, plain, self.shared)

    def same(
        self, expected: Reference, observed: Rows, tolerance: Tolerance | None = None
    ) -> None:
        """The law: ``observed`` is as near to the float64 reference as the plain path is, within
        tolerance.

        The plain path's own error is one draw of rounding, and may be small by luck where much
        cancels.  So before the law is refuted, the plain path runs as other machines may round
        it, and its largest error counts, if it is less than any bound allows.  In 16 bits, where
        the bound is wide and emulated rounding is coarser than any machine's, those runs show
        instead which rows rounding moves far: they do not count (`Reference.settled`).

        Raises `Broken` where it is farther, and `Unsettled` where no row can be compared.
        """
        __tracebackhide__ = True
        self._by_reference = True
        worst = self._comparison(tolerance).worst(expected, observed)
        most = (tolerance or self.tolerance).most if self.wide else math.inf
        if worst[1] < worst[0].error <= most and not self._emulated:
            self._emulated = True
            worst = self._comparison(tolerance).worst(expected, observed)
        if left_out := self._comparison(tolerance).left_out(expected):
            self.details[BY_16_BITS] = self.details.get(BY_16_BITS, 0) + left_out
        rows, nothing = incomparable(shared(observed, expected), expected.oracle)
        if rows:
            self.details[NOT_NUMBERS] = self.details.get(NOT_NUMBERS, 0) + rows
        if nothing and not worst[0].error:
            raise Unsettled
        self.judge(worst[0].error, worst[1], worst[0].where)

    def equal_runs(
        self,
        first: Rows,
        again: Callable[[], Rows],
        observed: Rows,
        same_tokens: bool = False,
        where: str = "two passes of one shape",
    ) -> None:
        """The law for two passes of one shape: they differ by no more than two equal runs do.

        ``first`` and ``again()`` are two equal runs, which ``observed`` must equal.  Does nothing
        where the shapes inside a pass depend on the tokens (`models.subject.shapes`), unless all
        passes are of the ``same_tokens``.
        """
        __tracebackhide__ = True
        from assay.harness.models.subject import shapes

        if not same_tokens and shapes.depend_on_tokens(self.subject):
            return
        names = [name for name in first.tensors if name in observed.tensors]
        if not names:
            raise Unsettled("the two passes give no tensor of the same name")
        first, observed = first.only(*names), observed.only(*names)
        self._learn_noise(first, again())
        worst, allowed = self._against_equal_run(first, observed)
        for _ in range(MORE_RUNS):
            if not beyond(worst.error, allowed):
                break
            self._learn_noise(first, again())
            worst, allowed = self._against_equal_run(first, observed)
        self._one_shape, self._equal = True, first
        self.judge(worst.error, allowed, f"{worst.where}, {where}")

    def equal_runs_reject(self, first: Rows, damaged: Rows) -> None:
        """A control of `equal_runs`, after it: ``damaged`` rows differ from the ``first``."""
        worst, allowed = self._against_equal_run(first, damaged)
        self.judge_control(worst.error, allowed)
        self._look_for_leaks_into_equal_runs(first, damaged)

    def _learn_noise(self, first: Rows, again: Rows) -> None:
        """Keep the largest difference between two equal runs, by tensor."""
        for name, apart in farthest(again.only(*first.tensors), first).items():
            self._noise[name] = max(self._noise.get(name, 0.0), apart.error)

    def _against_equal_run(self, first: Rows, observed: Rows) -> tuple[Distance, float]:
        bound = EQUAL_RUNS[precision.working(self.subject)]
        pairs = [
            (apart, bound.allowed(self._noise.get(name, 0.0)))
            for name, apart in farthest(observed, first).items()
        ]
        return min(pairs, key=lambda pair: margin(pair[0].error, pair[1]))

    def judge(self, observed: float, allowed: float, where: str = "") -> None:
        """The law as two numbers: ``observed`` must be at most ``allowed``; `Broken` if not."""
        __tracebackhide__ = True
        self.compared += 1
        self.remember(observed, allowed)
        if beyond(observed, allowed):
            raise Broken(observed, allowed, where)

    def remember(self, observed: float, allowed: float) -> None:
        """Keep the two numbers if their margin is the smallest so far."""
        room = margin(observed, allowed)
        self._room = min(self._room, room)
        if room < self._worst or self.compared == 1:
            self._worst, self.observed, self.allowed = room, observed, allowed

    def begin(self, shared: bool = False) -> None:
        """Begin an example: forget the comparisons of the one before."""
        self.shared = shared
        self._room, self._equal, self._emulated = math.inf, None, False

    def end(self) -> None:
        """End an example that kept the law: record its least margin, NaN without comparisons."""
        self.margins.append(self._room if math.isfinite(self._room) else math.nan)

    def wants(self, control: str = "") -> bool:
        """Whether the control of that name must still be rejected more often, or the law has not
        yet detected a leak as small as required: few rows, or much rounding, can hide one.
        """
        blunt = self.leak is not None and not self.sharp and self._looks < LOOKS
        return self.controls.wanted(control) or blunt

    def rejects(
        self,
        expected: Reference,
        damaged: Rows | Callable[[], Rows],
        tolerance: Tolerance | None = None,
        control: str = "",
    ) -> None:
        """A control: the same comparison must reject the ``damaged`` rows.

        Not every example can tell them apart (one token, equal tokens); at least one must.  A law
        with several controls declares them by name, and must reject each.
        """
        if not self.wants(control):
            return
        rows = damaged() if callable(damaged) else damaged
        try:
            worst, allowed = self._comparison(tolerance).worst(expected, rows)
        except Unsettled:
            return  # the law compared rows that the control leaves out
        self.judge_control(worst.error, allowed, control)
        self._look_for_leaks(expected, rows, tolerance)

    def judge_control(self, observed: float, allowed: float, control: str = "") -> None:
        """A control as two numbers: counted as rejected when ``observed`` is above."""
        self.controls.control(control).count(observed, allowed, beyond(observed, allowed))

    def sees(
        self,
        inject: Callable[[float], tuple[float, float]],
        goal: float | None = None,
        noise: float = math.inf,
    ) -> None:
        """Find how small an error this law detects: ``inject(size)`` returns the observed and the
        allowed number with an error of that relative size.

        ``goal`` is the size to detect where the law's bound is not the dtype's; ``noise`` is how
        far rounding alone moves the number, where that is known.
        """
        self._goal = goal
        if not self.sharp:
            self._least_noise = min(self._least_noise, noise)
            self._saw(sensitivity.smallest_size(lambda size: beyond(*inject(size))))

    def sees_one_bit(self, observed: float, allowed: float = 0.0) -> None:
        """For a law about bits: ``observed`` is measured with one element moved by one unit in
        the last place, and must be rejected.
        """
        size = torch.finfo(self.subject.dtype).eps if beyond(observed, allowed) else math.inf
        self._saw(size)

    def sees_one(self, what: str, observed: float, allowed: float = 0.0) -> None:
        """For a law that counts: ``observed`` is measured with one wrong ``what``, the smallest
        possible error, and must be rejected.
        """
        counts = self.details.setdefault(SEES_ONE, {"what": what, "injected": 0, "seen": 0})
        counts["injected"] += 1
        counts["seen"] += beyond(observed, allowed)

    def reaches(self, what: str, reached: bool) -> None:
        """Note whether this example reached ``what``, without which the law says nothing.

        A law of which no example did is inconclusive.
        """
        self.reached[what] = self.reached.get(what, False) or reached

    @property
    def unreached(self) -> str:
        """What no example reached, in words; empty if nothing is missing."""
        missing = [what for what, reached in self.reached.items() if not reached]
        if not missing:
            return ""
        return f"not reached with prompts of up to {self.tokens} tokens: {', '.join(missing)}"

    @property
    def leaks(self) -> dict[str, float]:
        """The details about leaks: the smallest one detected, and the goal, if there is one."""
        if self.leak is None:
            return {}
        return {LEAK: self.leak} | ({LEAK_GOAL: self.goal} if math.isfinite(self.goal) else {})

    @property
    def blunt(self) -> str:
        """Why the law is not sensitive enough, in words; empty if it is."""
        if self.leak is not None and not self.sharp:
            return f"does not see a leak of {self.goal:g}, but one of {self.leak:.2g}"
        one = self.details.get(SEES_ONE, {"injected": 0, "seen": 0})
        if one["seen"] < one["injected"]:
            return f"saw one {one['what']} in {one['seen']} of {one['injected']} injections"
        return ""

    @property
    def hidden(self) -> bool:
        """Whether the law detects only a leak larger than the goal, in 16 bits, where rounding
        alone may move a sound model by more.
        """
        above_goal = self.leak is not None and self.goal < self.leak < 1.0
        return above_goal and (self.in_half or not self.wide)

    @property
    def judged_by(self) -> str:
        """What judges this law's comparisons, in words."""
        ways = ["the float64 reference"] if self._by_reference else []
        if self._one_shape:
            ways.append("what two equal runs differ by, for its two passes of one shape")
        return "; ".join(ways) or "a bound of its own"

    @property
    def goal(self) -> float:
        """The relative size of a leak that this law must detect in the subject's dtype.

        It is larger where rounding moves the subject far, since no comparison detects less; not
        in 16 bits, where rounding does so on any subject and the goal allows for it.
        """
        if self._goal is not None:
            return self._goal
        goals = sensitivity.GOALS[precision.working(self.subject)]
        goal = goals.one_shape if self._one_shape else goals.other
        if not self.wide or self._least_noise == math.inf:
            return goal
        relative = min(sensitivity.TIMES_NOISE * self._least_noise, sensitivity.MOST * goal)
        return max(goal, relative)

    @property
    def sharp(self) -> bool:
        """Whether a leak as small as the goal was detected."""
        return self.leak is not None and self.leak <= self.goal

    @property
    def can_fail(self) -> bool:
        """Whether every control was rejected, a leak as small as the goal detected, and what the
        law is about reached.
        """
        seen = self.leak is None or self.sharp
        return not self.controls.outstanding and seen and not self.unreached

    def _saw(self, size: float) -> None:
        self._looks += 1
        if not math.isnan(size):
            self.leak = min(size, math.inf if self.leak is None else self.leak)

    def _look_for_leaks(
        self, expected: Reference, damaged: Rows, tolerance: Tolerance | None
    ) -> None:
        """Inject the control, scaled down, into the plain rows until the comparison passes it."""
        self._goal = None if tolerance is None else tolerance.sees
        if self.sharp and math.isfinite(self.goal):
            return

        comparison = self._comparison(tolerance)
        self._least_noise = min(self._least_noise, comparison.noise(expected))
        try:
            self._saw(comparison.smallest_leak(expected, damaged))
        except Unsettled:
            return
        if (first := self._equal) is not None:
            self._look_for_leaks_into_equal_runs(first, damaged)

    def _look_for_leaks_into_equal_runs(self, first: Rows, damaged: Rows) -> None:
        def differs(rows: Rows) -> bool:
            worst, allowed = self._against_equal_run(first.only(*rows.tensors), rows)
            return beyond(worst.error, allowed)

        self._saw(sensitivity.smallest_leak(first, damaged, differs))
