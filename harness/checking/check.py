"""Compares a law's observations and its controls with the float64 reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from assay.harness.checking import sensitivity
from assay.harness.checking.comparing import Comparison, Unsettled, beyond, shared
from assay.harness.checking.controls import Controls
from assay.harness.checking.detection import Detection
from assay.harness.checking.record import Record
from assay.harness.checking.reference import Reference, run_both
from assay.harness.models.reference.tolerances import (
    TOLERANCES,
    Tolerance,
    incomparable,
)
from assay.harness.models.subject import Subject
from assay.harness.models.subject.rows import Rows

NOT_NUMBERS = "rows with NaN on both sides"
"""Key in a law's details: how many rows could not be compared in full, over all examples."""

BY_16_BITS = "rows left out, which the rounding of 16 bits moves too far"
"""Key in a law's details: how many rows said nothing (`Reference.row_mask`), over all examples."""


class Broken(AssertionError):
    """A law does not hold on an example: what was observed, what is allowed, and where.

    ``cause`` says what is wrong there, where that can be told.
    """

    def __init__(self, observed: float, allowed: float, where: str, cause: str = "") -> None:
        super().__init__(f"observed {observed:.3g}, allowed {allowed:.3g}, at {where}")
        self.observed, self.allowed, self.where, self.cause = observed, allowed, where, cause


class Check:
    """What the body of a law calls: comparisons, controls, and how small an error they detect.

    ``details`` takes whatever else the result should show.  ``in_half`` says that the law is about
    16 bits, in a model of any dtype.  ``record`` is for the runner.
    """

    def __init__(self, subject: Subject, controls: Controls | None = None) -> None:
        self.subject = subject
        self.details: dict[str, Any] = {}
        self.in_half = False
        self.record = Record(Detection(subject), Controls() if controls is None else controls)

    @property
    def tolerance(self) -> Tolerance:
        """What the subject's dtype allows."""
        return TOLERANCES[self.record.detection.dtype]

    @property
    def wide(self) -> bool:
        """Whether emulated rounding is like a machine's: it moves 16-bit results far more."""
        return self.record.detection.wide

    def _comparison(self, tolerance: Tolerance | None) -> Comparison:
        emulated = self.record.example.emulated
        return Comparison(tolerance or self.tolerance, self.subject.dtype, self.wide, emulated)

    def reference(self, plain: Callable[[Subject], Rows]) -> Reference:
        """Run the plain path on the subject and on its float64 reference copy."""
        return run_both(self.subject, plain, self.record.example.shared)

    def same(
        self, expected: Reference, observed: Rows, tolerance: Tolerance | None = None
    ) -> None:
        """The law: ``observed`` is as near to the float64 reference as the plain path is, within
        tolerance.

        The plain path's own error is one draw of rounding, and may be small by luck where much
        cancels.  So before the law is refuted, the plain path runs as other machines may round
        it, and its largest error counts, if it is less than any bound allows.

        In 16 bits the bound is wide and emulated rounding is coarser than any machine's.  Those
        runs then show which rows rounding moves far: they do not count (`Reference.row_mask`).

        Raises `Broken` where it is farther, and `Unsettled` where no row can be compared.
        """
        __tracebackhide__ = True
        self.record.by_reference = True
        example = self.record.example
        worst = self._comparison(tolerance).worst(expected, observed)
        most = (tolerance or self.tolerance).most if self.wide else math.inf
        if worst[1] < worst[0].error <= most and not example.emulated:
            example.emulated = True
            worst = self._comparison(tolerance).worst(expected, observed)
        if left_out := self._comparison(tolerance).left_out(expected):
            self.details[BY_16_BITS] = self.details.get(BY_16_BITS, 0) + left_out
        rows, nothing = incomparable(shared(observed, expected), expected.oracle)
        if rows:
            self.details[NOT_NUMBERS] = self.details.get(NOT_NUMBERS, 0) + rows
        if nothing and not worst[0].error:
            raise Unsettled
        extent = self._comparison(tolerance).extent if beyond(worst[0].error, worst[1]) else None
        cause = extent(expected, observed) if extent else ""
        self.judge(worst[0].error, worst[1], worst[0].where, cause)

    def judge(self, observed: float, allowed: float, where: str = "", cause: str = "") -> None:
        """The law as two numbers: ``observed`` must be at most ``allowed``; `Broken` if not.

        ``cause`` says what is wrong, in words, where it is above.
        """
        __tracebackhide__ = True
        self.record.compared += 1
        self.record.add(observed, allowed)
        if beyond(observed, allowed):
            raise Broken(observed, allowed, where, cause)

    def wants(self, control: str = "") -> bool:
        """Whether the control of that name must still be rejected more often, or the law has not
        yet detected a leak as small as required.
        """
        return self.record.controls.wanted(control) or self.record.detection.wanted

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
        counts = self.record.controls.control(control)
        counts.count(observed, allowed, beyond(observed, allowed))

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
        detection = self.record.detection
        detection.own_goal = goal
        if not detection.sharp:
            detection.noise = min(detection.noise, noise)
            goal = detection.goal
            detection.add(sensitivity.smallest_size(lambda size: beyond(*inject(size)), goal))

    def sees_one_bit(self, observed: float, allowed: float = 0.0) -> None:
        """For a law about bits: ``observed`` is measured with one element moved by one unit in
        the last place, and must be rejected.
        """
        size = torch.finfo(self.subject.dtype).eps if beyond(observed, allowed) else math.inf
        self.record.detection.add(size)

    def sees_one(self, what: str, observed: float, allowed: float = 0.0) -> None:
        """For a law that counts: ``observed`` is measured with one wrong ``what``, the smallest
        possible error, and must be rejected.
        """
        self.record.detection.count_one(what, beyond(observed, allowed))

    def reaches(self, what: str, reached: bool) -> None:
        """Note whether this example reached ``what``, without which the law says nothing.

        A law of which no example did is inconclusive.
        """
        self.record.reached[what] = self.record.reached.get(what, False) or reached

    def _look_for_leaks(
        self, expected: Reference, damaged: Rows, tolerance: Tolerance | None
    ) -> None:
        """Inject the control, scaled down, into the plain rows until the comparison passes it."""
        detection = self.record.detection
        detection.own_goal = None if tolerance is None else tolerance.sees
        if detection.sharp and math.isfinite(detection.goal):
            return

        comparison = self._comparison(tolerance)
        detection.noise = min(detection.noise, comparison.noise(expected))
        try:
            detection.add(comparison.smallest_leak(expected, damaged, detection.goal))
        except Unsettled:
            return
        if (smallest_leak := self.record.example.smallest_leak) is not None:
            detection.add(smallest_leak(damaged))
