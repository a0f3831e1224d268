"""Additive 4-D attention masks: causal, windowed, full, and conjugated by a permutation.

All are [1, 1, n, n] (`padded`: one for each row of a batch), 0 where a query (third axis) may
attend to a key (last axis) and the dtype's lowest number elsewhere, as transformers expects of
``attention_mask``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """``visible`` (bool [n, n], query by key) as an additive mask [1, 1, n, n]."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill(~visible, torch.finfo(dtype).min)[None, None]


def full(n: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """Every query attends to every key."""
    return additive(torch.ones(n, n, dtype=torch.bool, device=device), dtype)


def causal(
    n: int, dtype: torch.dtype, device: torch.device | str = "cpu", ahead: int = 0
) -> Tensor:
    """Query i attends to keys up to i + ``ahead``; ``ahead`` > 0 is a leak from the future."""
    visible = torch.ones(n, n, dtype=torch.bool, device=device).tril(ahead)
    return additive(visible, dtype)


def padded(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The causal mask of a padded batch: ``mask`` [batch, n], 1 for content → [batch, 1, n, n]."""
    n = mask.shape[1]
    visible = torch.ones(n, n, dtype=torch.bool, device=mask.device).tril() & mask.bool()[:, None]
    return torch.cat([additive(row, dtype) for row in visible])


def conjugated(mask: Tensor, order: Tensor) -> Tensor:
    """``mask`` for tokens moved by ``order``: row and column j of the result are ``order[j]``.

    With token ``order[j]`` now at position j, position j attends to position k exactly when token
    ``order[j]`` attended to token ``order[k]``: P M Pᵀ.
    """
    return mask[..., order, :][..., :, order]
