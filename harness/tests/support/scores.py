"""Random tables of rows, and the rows that score highest, found the slow way."""

from __future__ import annotations

import torch
from torch import Tensor

V, D = 300, 24


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def slow(table: Tensor, points: Tensor, k: int, nearest: bool) -> Tensor:
    """All scores in float64, sorted."""
    w = table.double()
    scores = points @ w.T - (0.5 * w.square().sum(1) if nearest else 0)
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
