"""How many operations a step takes, and how many a second the machine can do."""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.inversion.target import Target
from harness.subject import Subject

SIZES = {"cpu": (1024, 2048, 3072), "cuda": (4096, 8192, 16384)}
"""Of the square matrices whose products are timed, by the kind of device."""

TRIES = 3
"""Products of which the fastest counts."""


def weights(subject: Subject, target: Target) -> int:
    """N: numbers in the matrices that a token is multiplied with on its way to the target."""
    blocks = list(subject.blocks)[: target.depth]
    count = sum(each.numel() for block in blocks for each in block.parameters() if each.ndim == 2)
    if target.through in ("head", "logits"):
        count += subject.model.get_output_embeddings().weight.numel()
    return count


def of_token_step(subject: Subject, target: Target, n: int) -> int:
    """FLOPs of one step of descent for one of ``n`` tokens: 4 N + 12 L d T.

    2 N forward and 2 N backward to the input alone; attention has two products of 2 d T each in
    every one of L blocks, and takes twice that again to go back.
    """
    width = subject.config.hidden_size
    return 4 * weights(subject, target) + 12 * target.depth * width * n


class Ceiling:
    """The best square matrix product of a dtype on a device, in FLOP/s."""

    def __init__(
        self, dtype: torch.dtype, device: torch.device, clock: Callable[[], float]
    ) -> None:
        self.dtype, self.device, self.clock = dtype, device, clock
        self.best = 0.0
        rates = {size: self._rate(size) for size in SIZES.get(device.type, SIZES["cpu"])}
        self.size = max(rates, key=lambda size: rates[size])

    def __call__(self) -> float:
        """Measure again, at the best size: FLOP/s."""
        return self._rate(self.size)

    def _rate(self, size: int) -> float:
        one, other = (
            torch.rand(size, size, device=self.device).to(self.dtype) - 0.5 for _ in range(2)
        )
        torch.mm(one, other)
        seconds = []
        for _ in range(TRIES):
            begun = self.clock()
            torch.mm(one, other)
            seconds.append(self.clock() - begun)
        rate = 2 * size**3 / min(seconds)
        self.best = max(self.best, rate)
        return rate
