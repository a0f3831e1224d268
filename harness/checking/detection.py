"""What a law detected: its smallest error so far, and the one that it must detect."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.harness.checking import sensitivity
from assay.harness.models.reference import precision
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import LEAK, LEAK_GOAL, SEES_ONE

LOOKS = 24
"""How often a law is searched for its smallest visible leak, at most."""


@dataclass
class Detection:
    """How small an error a law detects in a subject.

    ``leak`` is the smallest relative error that a comparison detected; None: not tried.
    ``one_shape`` says that the law also compares two passes of one shape, whose goal is smaller.
    ``own_goal`` is the goal of a law whose bound is not the dtype's.  ``noise`` is the least by
    which rounding alone moved the compared number.
    """

    subject: Subject
    leak: float | None = None
    one_shape: bool = False
    own_goal: float | None = None
    noise: float = math.inf
    _looks: int = 0
    _ones: dict[str, Any] = field(default_factory=dict)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype whose tolerance applies."""
        return precision.working(self.subject)

    @property
    def wide(self) -> bool:
        """Whether emulated rounding is like a machine's: it moves 16-bit results far more."""
        return self.dtype in (torch.float32, torch.float64)

    @property
    def goal(self) -> float:
        """The relative size of an error that the law must detect.

        It is larger where rounding moves the subject far, since no comparison detects less; not
        in 16 bits, where rounding does so on any subject and the goal allows for it.
        """
        if self.own_goal is not None:
            return self.own_goal
        goals = sensitivity.GOALS[self.dtype]
        goal = goals.one_shape if self.one_shape else goals.other
        if not self.wide or self.noise == math.inf:
            return goal
        relative = min(sensitivity.TIMES_NOISE * self.noise, sensitivity.MOST * goal)
        return max(goal, relative)

    @property
    def sharp(self) -> bool:
        """Whether an error as small as the goal was detected."""
        return self.leak is not None and self.leak <= self.goal

    @property
    def wanted(self) -> bool:
        """Whether a further example may show a smaller error, which few rows can hide."""
        return self.leak is not None and not self.sharp and self._looks < LOOKS

    @property
    def above_goal(self) -> bool:
        """Whether the law detects an error smaller than a row, and none as small as the goal."""
        return self.leak is not None and self.goal < self.leak < 1.0

    def add(self, size: float) -> None:
        """Note the smallest error that one look detected; NaN where nothing could be injected."""
        self._looks += 1
        if not math.isnan(size):
            self.leak = min(size, math.inf if self.leak is None else self.leak)

    def count_one(self, what: str, detected: bool) -> None:
        """Count one wrong ``what``, the smallest possible error of a law that counts."""
        self._ones = self._ones or {"what": what, "injected": 0, "seen": 0}
        self._ones["injected"] += 1
        self._ones["seen"] += detected

    @property
    def blunt(self) -> str:
        """Why the law is not sensitive enough, in words; empty if it is."""
        if self.leak is not None and not self.sharp:
            return f"does not see a leak of {self.goal:g}, but one of {self.leak:.2g}"
        ones = self._ones
        if ones and ones["seen"] < ones["injected"]:
            return f"saw one {ones['what']} in {ones['seen']} of {ones['injected']} injections"
        return ""

    def as_json(self) -> dict[str, Any]:
        """The details: the smallest error detected, the finite goal, and single errors counted."""
        details: dict[str, Any] = {SEES_ONE: self._ones} if self._ones else {}
        if self.leak is None:
            return details
        return (
            details
            | {LEAK: self.leak}
            | ({LEAK_GOAL: self.goal} if math.isfinite(self.goal) else {})
        )
