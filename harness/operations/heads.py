"""A plain attention head, with nothing around it: the subject of document 001's arguments."""

from __future__ import annotations

import copy
import math
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.harness.checking.reference import Reference
from assay.harness.models.subject.rows import Rows

IMPLEMENTATIONS = ("eager", "sdpa", "flex")
"""Plain products and a softmax; torch's fused kernel; torch's flex attention."""


class Head(nn.Module):
    """Self-attention without positions, mask or residual: [batch, n, width] → same.

    ``heads`` heads of ``size`` each, drawn from ``seed`` at unit gain.
    """

    def __init__(self, width: int, size: int, heads: int, implementation: str, seed: int) -> None:
        super().__init__()
        self.size, self.heads, self.implementation, self.seed = size, heads, implementation, seed
        generator = torch.Generator().manual_seed(seed)

        def matrix(rows: int, columns: int) -> nn.Parameter:
            weights = torch.randn(rows, columns, generator=generator)
            return nn.Parameter(weights / rows**0.5, requires_grad=False)

        self.query, self.key, self.value = (matrix(width, heads * size) for _ in range(3))
        self.out = matrix(heads * size, width)

    def inputs(self, n: int, batch: int = 2) -> Tensor:
        """Distinct rows drawn from the head's seed: [batch, n, width]."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        return torch.randn(batch, n, self.query.shape[0], generator=generator).to(self.query)

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        """Attend; with ``causal`` each row attends only to itself and those before it."""
        batch, n, _ = x.shape
        q, k, v = (
            (x @ w).view(batch, n, self.heads, self.size).transpose(1, 2)
            for w in (self.query, self.key, self.value)
        )
        attended = getattr(self, f"_{self.implementation}")(q, k, v, causal)
        return torch.matmul(attended.transpose(1, 2).reshape(batch, n, -1), self.out)

    @staticmethod
    def _eager(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        if causal:
            visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
            scores = scores.masked_fill(~visible, -torch.inf)
        return torch.matmul(scores.softmax(-1), v)

    @staticmethod
    def _sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    @staticmethod
    def _flex(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        n = q.shape[-2]
        mask = None
        if causal:
            mask = create_block_mask(
                lambda b, h, i, j: i >= j, None, None, n, n, device=str(q.device)
            )
        # Tracing it again for every shape would take far longer than the products.
        with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it advises to compile, for speed
            return flex_attention(q, k, v, block_mask=mask)

    def rows(self, x: Tensor, causal: bool = False) -> Rows:
        """`forward` as rows."""
        return Rows({"head": self(x, causal)})

    def reference(self, x: Tensor) -> Reference:
        """The head's output for ``x``, and that of plain products in float64."""
        exact = copy.deepcopy(self).double()
        exact.implementation = "eager"
        return Reference(self.rows(x), exact.rows(x.double()))
