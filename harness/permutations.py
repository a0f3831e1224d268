"""Permutations as tensors: ``order[j]`` is the old place of what now stands at place j."""

from __future__ import annotations

import torch
from torch import Tensor


def inverse(order: Tensor) -> Tensor:
    """The permutation that undoes ``order``: [n] → [n]."""
    undone = torch.empty_like(order)
    undone[order] = torch.arange(len(order), device=order.device)
    return undone


def is_identity(order: Tensor) -> bool:
    """Whether ``order`` leaves everything in its place."""
    return bool((order == torch.arange(len(order), device=order.device)).all())
