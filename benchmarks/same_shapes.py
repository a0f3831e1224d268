"""Measures how fast a machine multiplies the matrices of a function, without all else it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from assay.benchmarks.limits import TRIES
from assay.benchmarks.stopwatch import Stopwatch

PRODUCTS = {
    torch.ops.aten.mm.default: (0, 1),
    torch.ops.aten.addmm.default: (1, 2),
    torch.ops.aten.bmm.default: (0, 1),
    torch.ops.aten.baddbmm.default: (1, 2),
}
"""Operations that multiply matrices, and the places of the two among their operands."""


def operations_of(one: Tensor, other: Tensor) -> int:
    """Multiplications and additions of the product of [..., m, k] and [..., k, n]."""
    return 2 * one.numel() * other.shape[-1]


class SameShapes(TorchDispatchMode):
    """The matrix products of a function, in FLOP/s: the same operands one after another.

    They have the shapes, strides and addresses of a call of ``function``, as large as its own.
    Attention is not among them where one operation computes all of it.
    """

    def __init__(self, function: Callable[[], object], stopwatch: Stopwatch) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self.stopwatch, self.best, self.flops = stopwatch, 0.0, 0
        with self:
            function()
        for operation, operands in self.calls:
            one, other = (operands[place] for place in PRODUCTS[operation])
            self.flops += operations_of(one, other)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in PRODUCTS:
            self.calls.append((func, args))
        return func(*args, **(kwargs or {}))

    def __call__(self) -> float:
        """The fastest of some tries of all products, in FLOP/s."""
        rate = self.flops / min(self.stopwatch.lap(self._multiply).seconds for _ in range(TRIES))
        self.best = max(self.best, rate)
        return rate

    def _multiply(self) -> None:
        with torch.no_grad():
            for operation, operands in self.calls:
                operation(*operands)
