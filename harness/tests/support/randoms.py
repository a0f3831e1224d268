"""Random numbers by seed."""

from __future__ import annotations

import torch
from torch import Tensor


def seeded(seed: int = 0) -> torch.Generator:
    """A generator that gives the same numbers each time."""
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers of this shape, drawn in float64."""
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64).to(dtype)
