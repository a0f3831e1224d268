"""Named tensors with a row for each position: a model's outputs for a prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Tensors [batch, positions, features] by name (``state 0`` … ``state L``, ``logits``).

    An MoE model adds ``router gap`` [batch, positions, 1]: how clearly the experts are chosen for
    a row and the rows it attends to (`row_mask`).  It is 1 where something else is chosen, such as
    the keys that a query attends to.
    """

    tensors: dict[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def map(self, change: Callable[[Tensor], Tensor]) -> Rows:
        """The same names, with ``change`` applied to every tensor."""
        return Rows({name: change(tensor) for name, tensor in self.tensors.items()})

    def at(self, index: slice | Tensor | list[int]) -> Rows:
        """The positions that ``index`` selects, in its order."""
        return self.map(lambda tensor: tensor[:, index])

    @property
    def last(self) -> Rows:
        """The last position only, [batch, 1, features]."""
        return self.at(slice(-1, None))

    def only(self, *names: str) -> Rows:
        """The named tensors."""
        return Rows({name: self.tensors[name] for name in names})

    def mean(self) -> Rows:
        """The mean over positions, [batch, 1, features]: the pooled output."""
        return self.map(lambda tensor: tensor.mean(dim=1, keepdim=True))

    def row_mask(self, gap: float) -> Tensor | None:
        """Rows whose experts are chosen by more than ``gap`` (bool [batch, positions]), or None.

        Below it two correct paths may route a token differently.
        """
        gaps = self.tensors.get("router gap")
        return None if gaps is None else gaps[..., 0] > gap

    @staticmethod
    def along_positions(parts: list[Rows]) -> Rows:
        """Concatenate the rows of one prompt's chunks along positions."""
        names = parts[0].tensors
        return Rows({n: torch.cat([part[n] for part in parts], dim=1) for n in names})


@dataclass(frozen=True)
class Output:
    """The output of one forward pass: ``rows`` and, if requested, the cache.

    ``pooled`` names states whose rows are not one for each token: they are not among ``rows``.
    ``loss`` is the model's own, of the ``labels`` among the options.
    """

    rows: Rows
    cache: Any = None
    pooled: tuple[str, ...] = ()
    loss: Tensor | None = None
