"""Independent draws by seed: draw i of a claim is the same in every run of one base seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """A block of draws, numbers ``start`` to ``start + count - 1`` of the claim ``claim``."""

    seed: int
    claim: str
    start: int
    count: int

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(range(self.start, self.start + self.count))

    def __len__(self) -> int:
        return self.count

    def generator(self, number: int, purpose: str = "") -> torch.Generator:
        """The source of randomness of draw ``number``; another ``purpose`` has another."""
        words = f"{self.seed}/{self.claim}/{number}/{purpose}"
        digest = hashlib.sha256(words.encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)

    def integers(self, high: int, purpose: str, low: int = 0) -> Tensor:
        """One whole number from ``low`` to ``high - 1`` for each draw: [draws]."""
        return torch.stack(
            [torch.randint(low, high, (), generator=self.generator(i, purpose)) for i in self]
        )

    def orders(self, n: int, purpose: str = "order", last_fixed: bool = False) -> Tensor:
        """A permutation of ``n`` places for each draw, never the identity: [draws, n].

        ``order[j]`` is the old place of what stands at j.  With ``last_fixed`` the last place
        keeps what it has.
        """
        free = n - 1 if last_fixed else n
        if free < 2:
            raise ValueError(f"{n} places have no such permutation")
        return torch.stack([self._order(i, n, free, purpose) for i in self])

    def _order(self, number: int, n: int, free: int, purpose: str) -> Tensor:
        generator = self.generator(number, purpose)
        order = torch.arange(n)
        while bool((order == torch.arange(n)).all()):
            order[:free] = torch.randperm(free, generator=generator)
        return order

    def numpy(self, purpose: str = "") -> np.random.Generator:
        """One source of randomness of numpy's for the whole block."""
        digest = hashlib.sha256(f"{self.seed}/{self.claim}/{self.start}/{purpose}".encode())
        return np.random.default_rng(int.from_bytes(digest.digest()[:8], "big"))
