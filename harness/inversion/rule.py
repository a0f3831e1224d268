"""How to descend: steps, optimiser, distance and schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.harness.operations.choices import check_choice
from assay.harness.results.errors import BadInput


@dataclass(frozen=True)
class Rule:
    """How to descend: the defaults are document 003's.

    ``optimiser`` is ``descent`` or ``adam``; ``distance`` is ``l1`` or ``l2`` (Euclid's, not its
    square); under ``schedule`` the learning rate falls to a tenth in a line (``linear``) or by a
    ``cosine``, or is ``constant``.  The host checks the losses ``every`` that many steps.
    """

    steps: int = 1000
    optimiser: str = "descent"
    distance: str = "l1"
    schedule: str = "linear"
    every: int = 25

    def __post_init__(self) -> None:
        choices = {
            "optimiser": ("descent", "adam"),
            "distance": tuple(DISTANCES),
            "schedule": tuple(SCHEDULES),
        }
        for name, allowed in choices.items():
            check_choice(name, getattr(self, name), allowed)
        if self.steps < 1 or self.every < 1:
            raise BadInput(f"steps {self.steps}, every {self.every}: at least 1 is needed")


DISTANCES: dict[str, Callable[[Tensor], Tensor]] = {
    "l1": lambda difference: difference.abs().sum((1, 2)),
    "l2": lambda difference: difference.square().sum((1, 2)).clamp_min(1e-30).sqrt(),
}
"""Differences [rows, n, features] → distances [rows]."""

SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda progress: 1 - 0.9 * progress,
    "cosine": lambda progress: 0.55 + 0.45 * torch.cos(math.pi * progress),
    "constant": torch.ones_like,
}
"""Share of the steps so far → factor of the learning rate."""
