"""Random tables of rows, and the rows that score highest, found the slow way."""

from __future__ import annotations

from torch import Tensor

V, D = 300, 24


def slow(table: Tensor, points: Tensor, k: int, nearest: bool) -> Tensor:
    """All scores in float64, sorted."""
    w = table.double()
    scores = points @ w.T - (0.5 * w.square().sum(1) if nearest else 0)
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
