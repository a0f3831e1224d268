"""The control of a comparison: one weight is moved, and the smallest movement detected."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.harness.checking import sensitivity
from assay.harness.models.reference.upcasting import Upcast
from assay.harness.models.subject import Subject
from assay.harness.operations.parity.recording import block_names

LARGEST_MOVE = 1e4
"""The largest movement of a weight that is tried, in units of its matrix's typical weight."""

CANDIDATES = 6
"""Weights that are tried for the control: not every prompt uses every expert."""


@dataclass(frozen=True)
class Moved:
    """The control: the smallest movement of one weight that is detected, or None if none is.

    ``weight`` names the parameter, ``index`` its element; ``by`` is the movement, and ``typical``
    the root of the mean square of the parameter's elements.
    """

    weight: str
    index: tuple[int, ...]
    by: float | None
    typical: float

    def __str__(self) -> str:
        where = f"{self.weight}{[*self.index]}"
        if self.by is None:
            return f"{where} moved by {LARGEST_MOVE * self.typical:.2g} is not detected"
        times = self.by / self.typical if self.typical else float("inf")
        return (
            f"one weight, {where}, moved by {self.by:.2g} ({times:.2g} times a typical weight of "
            "its matrix) is detected, a smaller movement is not"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**vars(self), "index": [*self.index]}


def control_weights(subject: Subject) -> list[tuple[str, Tensor]]:
    """Weights to move for the control, in the order to try: matrices of the middle block first."""
    stack = block_names(subject)
    middle = f"{stack[len(stack) // 2]}." if stack else ""
    matrices = []
    for name, weight in subject.model.named_parameters():
        stored = weight.data.stored if isinstance(weight.data, Upcast) else weight.data
        if stored.is_floating_point() and stored.ndim >= 2 and stored.numel():
            matrices.append((name.removeprefix("inner."), stored))
    matrices.reverse()  # the last matrix of a block writes to its output
    matrices.sort(key=lambda each: not (middle and each[0].startswith(middle)))
    return matrices[:CANDIDATES]


@contextmanager
def moved(weight: Tensor, place: tuple[int, ...], by: float) -> Iterator[None]:
    """``weight`` with the element at ``place`` moved, within a block."""
    with torch.no_grad():
        before = weight[place].clone()
        weight[place] = before + by
        try:
            yield
        finally:
            weight[place] = before


def smallest(subject: Subject, detected: Callable[[], bool]) -> Moved | None:
    """The smallest movement of one weight of ``subject`` that is detected; None: no weight.

    ``detected`` compares while the weight, the largest of its matrix, is moved.  It is put back.
    """
    last = None
    for name, weight in control_weights(subject):
        flat = weight.detach().reshape(-1)
        typical = float(flat.double().square().mean().sqrt()) or 1.0
        place = tuple(map(int, np.unravel_index(int(flat.abs().argmax()), tuple(weight.shape))))
        most = LARGEST_MOVE * typical

        def detects(
            size: float, weight: Tensor = weight, place: tuple[int, ...] = place, top: float = most
        ) -> bool:
            with moved(weight, place, size * top):
                return detected()

        size = sensitivity.smallest_size(detects)
        last = Moved(name, place, size * most if math.isfinite(size) else None, typical)
        if last.by is not None:
            break
    return last
