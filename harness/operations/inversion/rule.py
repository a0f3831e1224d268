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
    """How to descend: document 003's own way unless told otherwise.

    ``optimiser`` is ``descent`` or ``adam``; ``distance`` is ``l1`` or ``l2`` (Euclid's, not its
    square); under ``schedule`` the step size falls to a tenth in a line (``linear``) or by a
    ``cosine``, or is ``constant``.  The host looks ``every`` so many steps.
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
"""Of [rows, n, features]: [rows]."""

SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda done: 1 - 0.9 * done,
    "cosine": lambda done: 0.55 + 0.45 * torch.cos(math.pi * done),
    "constant": torch.ones_like,
}
"""The share of the step size that is left when a share of the steps is done."""
