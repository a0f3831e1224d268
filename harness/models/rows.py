"""Named tensors with a row for each position: a model's outputs for a prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Tensors [batch, positions, features] by name (``state 0`` … ``state L``, ``logits``).

    A mixture of experts adds ``router gap`` [batch, positions, 1]: how clearly the experts of a
    row, and of all that it sees, are chosen (`settled`).
    """

    tensors: dict[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def map(self, change: Callable[[Tensor], Tensor]) -> Rows:
        """The same names, every tensor changed alike."""
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

    def settled(self, gap: float) -> Tensor | None:
        """Rows whose experts are chosen by more than ``gap`` (bool [batch, positions]), or None.

        Below it two paths may route a token differently and both be right.
        """
        gaps = self.tensors.get("router gap")
        return None if gaps is None else gaps[..., 0] > gap

    @staticmethod
    def along_positions(parts: list[Rows]) -> Rows:
        """Parts one after another: what chunks of one prompt give."""
        names = parts[0].tensors
        return Rows({n: torch.cat([part[n] for part in parts], dim=1) for n in names})

    @staticmethod
    def along_batch(parts: list[Rows]) -> Rows:
        """Parts one below another: what single prompts give."""
        names = parts[0].tensors
        return Rows({n: torch.cat([part[n] for part in parts], dim=0) for n in names})
