"""Measures how small an error a comparison detects, by adding its scaled-down control.

A coarse control, such as a neighbour's row, shows that a comparison can fail, but not that it
detects a small error, a leak.  So the plain path's rows are moved towards the control's by a share
of their own length, tensor by tensor; the result is the smallest share that the law's own
comparison rejects.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from assay.harness.models.subject.rows import Rows

STEPS = 8
"""Sizes in each power of ten."""

LEAST, LARGEST = -14, 0
"""Powers of ten of the smallest and the largest leak."""

SIZES = [10 ** (k / STEPS) for k in range(LEAST * STEPS, LARGEST * STEPS + 1)]


@dataclass(frozen=True)
class Goal:
    """The relative size of a leak that a law must detect: for laws whose two passes have one
    shape, and for the others.
    """

    one_shape: float
    other: float


GOALS = {
    torch.float64: Goal(1e-11, 1e-11),
    torch.float32: Goal(1e-5, 1e-5),
    torch.float16: Goal(1.25e-4, 1.25e-2),
    torch.bfloat16: Goal(1e-3, 1e-1),
}
"""A law that detects no leak of this size is inconclusive: it is too blunt.

Float16 has three bits more than bfloat16, so its goal is an eighth.  Two passes of unlike shapes
are each off by 1e-2 in bfloat16 (docs/power.md), which hides smaller leaks.
"""

TIMES_NOISE = 12.0
"""A law must detect a leak of this multiple of the plain path's rounding error, where its goal is
less: twice the factor of the bound in float32 (`harness.models.reference.tolerances.TOLERANCES`).
"""

MOST = 100.0
"""The largest multiple of its goal at which a law must detect a leak under any rounding."""


def leaking(observed: Rows, damaged: Rows) -> Callable[[float], Rows]:
    """By size: ``observed`` + size × ‖its row‖ × the direction to ``damaged``, in float64.

    A row that the control leaves unchanged moves towards itself with its features rolled by one.
    """
    exact, leaks = {}, {}
    for name, tensor in observed.tensors.items():
        rows = exact[name] = tensor.double()
        towards = damaged[name].to(rows) - rows
        still = ~(towards != 0).any(-1, keepdim=True)
        if bool(still.any()):
            towards = torch.where(still, rows.roll(1, -1) - rows, towards)
        length = torch.linalg.vector_norm(towards, dim=-1, keepdim=True)
        own = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        leaks[name] = own * torch.where(length > 0, towards / length, 0.0)
    return lambda size: Rows({name: exact[name] + size * leaks[name] for name in exact})


def smallest_leak(
    observed: Rows, damaged: Rows, rejects: Callable[[Rows], bool], goal: float = math.inf
) -> float:
    """The smallest leak of `SIZES`, or the ``goal``, that is rejected in whichever tensor it is
    injected.

    ``rejects`` compares the tensors in its argument.  Infinite where a leak as large as a row is
    not detected in some tensor, and NaN where no tensor has the control's shape.
    """

    def smallest(name: str) -> float:
        leaky = leaking(observed.only(name), damaged.only(name))
        return smallest_size(lambda size: rejects(leaky(size)), goal)

    shapes = {name: tensor.shape for name, tensor in damaged.tensors.items()}
    names = [
        name
        for name, tensor in observed.tensors.items()
        if name != "router gap" and tensor.shape == shapes.get(name)
    ]
    return max(map(smallest, names), default=math.nan)


def smallest_size(sees: Callable[[float], bool], goal: float = math.inf) -> float:
    """The smallest of `SIZES` for which ``sees`` is true, by bisection; infinite if none is.

    The ``goal`` is tried as well where it lies just below that one, between two sizes.
    """
    place = bisect.bisect_left(SIZES, True, key=sees)
    size = SIZES[place] if place < len(SIZES) else math.inf
    between = place > 0 and SIZES[place - 1] < goal < size
    return goal if between and sees(goal) else size
