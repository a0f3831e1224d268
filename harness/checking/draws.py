"""Independent draws by seed: draw i of a claim is the same in every run of one base seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """Draws of the claim ``claim`` with these ``numbers``, under the base seed ``seed``."""

    seed: int
    claim: str
    numbers: Sequence[int]

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def for_claim(self, claim: str) -> Draws:
        """The same numbers as draws of ``claim``, for work that several claims share."""
        return replace(self, claim=claim)

    def only(self, predicate: Callable[[int], bool]) -> Draws:
        """The draws whose numbers satisfy ``predicate``."""
        return replace(self, numbers=[i for i in self.numbers if predicate(i)])

    def generator(self, number: int, purpose: str = "") -> torch.Generator:
        """The random generator of draw ``number``, a different one for each ``purpose``."""
        words = f"{self.seed}/{self.claim}/{number}/{purpose}"
        digest = hashlib.sha256(words.encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)

    def integers(self, low: int, high: int, purpose: str = "") -> Tensor:
        """An integer from ``low`` to ``high - 1`` for each draw: [draws]."""
        each = [torch.randint(low, high, (), generator=self.generator(i, purpose)) for i in self]
        return torch.stack(each)

    def normal(self, *shape: int, purpose: str = "") -> Tensor:
        """Standard normal numbers [draws, *shape]."""
        each = [torch.randn(shape, generator=self.generator(i, purpose)) for i in self]
        return torch.stack(each)

    def orders(self, n: int, last: str = "anywhere") -> Tensor:
        """A permutation of ``n`` positions for each draw, never the identity: [draws, n].

        ``order[j]`` is the old position of the item at j.  The ``last`` item goes ``anywhere``,
        is ``fixed``, or is ``moved``.  Raises ValueError for too few positions.
        """
        if n < (3 if last == "fixed" else 2):
            raise ValueError(f"{n} positions have no such permutation")
        return torch.stack([self._order(i, n, last) for i in self])

    def _order(self, number: int, n: int, last: str) -> Tensor:
        generator = self.generator(number, "order")
        free = n - 1 if last == "fixed" else n
        still = torch.arange(n)
        while True:
            order = still.clone()
            order[:free] = torch.randperm(free, generator=generator)
            if last == "moved" and int(order[-1]) == n - 1:
                continue
            if not bool((order == still).all()):
                return order

    def exchanges(self, n: int, first: bool) -> Tensor:
        """Orders that exchange two positions before the last; one is the ``first``, or neither.

        [draws, n]; raises ValueError for fewer than four positions.
        """
        if n < 4:
            raise ValueError(f"{n} positions have no such exchange")
        orders = torch.arange(n).repeat(len(self), 1)
        for row, number in enumerate(self):
            generator = self.generator(number, f"exchange {first}")
            i, j = (1 + torch.randperm(n - 2, generator=generator)[:2]).tolist()
            if first:
                i = 0
            orders[row, [i, j]] = orders[row, [j, i]]
        return orders
