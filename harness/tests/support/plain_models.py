"""Plain modules that map ids to logits: a small GPT with faults of choice."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY = 61
CONTEXT = 40


class Block(nn.Module):
    """A block with causal attention; ``leak`` and ``mix`` are shares of what it must not see."""

    def __init__(self, width: int, leak: float = 0.0, mix: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.leak, self.mix = leak, mix

    def forward(self, x: Tensor) -> Tensor:
        """States [batch, n, width] → the same."""
        n = x.shape[1]
        mask = torch.full((n, n), -torch.inf, dtype=x.dtype).triu(1)
        y = self.norm(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        x = x + self.mlp(x)
        x = x + self.leak * torch.cat([x[:, 1:], x[:, -1:]], dim=1)
        return x + self.mix * x.mean(0, keepdim=True)


class PlainGPT(nn.Module):
    """Ids [batch, n] → logits [batch, n, V], with learned positions up to `CONTEXT`."""

    def __init__(self, **faults: float) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.tokens = nn.Embedding(VOCABULARY, 32)
            self.positions = nn.Embedding(CONTEXT, 32)
            self.blocks = nn.ModuleList(Block(32, **faults) for _ in range(2))
            self.norm = nn.LayerNorm(32)
            self.head = nn.Linear(32, VOCABULARY, bias=False)

    def logits(self, ids: Tensor) -> Tensor:
        """The logits, by any other name of the argument."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def forward(self, ids: Tensor) -> Any:
        """The logits."""
        return self.logits(ids)
