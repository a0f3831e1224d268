"""Decodes embeddings into tokens: by the pseudo-inverse, and by the nearest row.

W is [V, d] and W⁺ = (WᵀW)⁻¹Wᵀ is [d, V]; document 003 decodes by ``argmax(e W⁺)``.  W⁺ is never
formed (INVERSION, 'Linear algebra'): W is factored (`harness.operations.factors`).  To decode
tokens a rough factorisation is enough: it shows which tokens it leaves open, and float64 decides
those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from assay.harness.operations.factors import EPSILON, Factored, Rough
from assay.harness.operations.likeliest import (
    Scorer,
    in_chunks,
    leaders,
    some_at_once,
    times_rows,
    times_table,
    working_dtype,
)


@dataclass(frozen=True)
class PseudoInverse:
    """W⁺ as an operator, of W [V, d], the ``matrix`` in its own dtype.

    W is factored when that is needed: roughly to decode tokens, in float64 for all else.
    """

    matrix: Tensor

    @classmethod
    def of(cls, table: Tensor) -> PseudoInverse:
        """W⁺ of W [V, d], in any floating dtype."""
        return cls(table.detach())

    @cached_property
    def rough(self) -> Rough | None:
        """A factorisation that is enough for most tokens.

        None if W is in float64, or too close to rank deficiency.
        """
        single = working_dtype(self.matrix) == torch.float32
        return Rough.of(self.matrix) if single else None

    @cached_property
    def exact(self) -> Factored:
        """W factored in float64."""
        return Factored.of(self.matrix)

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self.matrix)

    @property
    def _factored(self) -> Factored | Rough:
        """The best factorisation so far."""
        return self.exact if "exact" in vars(self) or self.rough is None else self.rough

    @property
    def method(self) -> str:
        """The method of the factorisation: ``cholesky``, ``qr`` or ``svd``."""
        return self._factored.method

    @property
    def condition(self) -> float:
        """The condition number of W over its range."""
        return self._factored.condition

    @property
    def rank(self) -> int:
        """The rank of W."""
        return self._factored.rank

    @property
    def least(self) -> float:
        """The least eigenvalue of WᵀW over its range."""
        return self.exact.least

    @property
    def rounding(self) -> float:
        """The expected relative error of `logits` in float64."""
        power = 2 if self.exact.method == "cholesky" else 1
        return EPSILON * self.exact.condition**power * self.matrix.shape[1]

    def logits(self, embeddings: Tensor) -> Tensor:
        """``e W⁺`` for e [..., d]: [..., V], in float64."""
        flat = embeddings.reshape(-1, embeddings.shape[-1]).double()
        logits = times_rows(self.exact.solve(flat), self.matrix)
        return logits.reshape(*embeddings.shape[:-1], -1)

    def apply(self, weights: Tensor) -> Tensor:
        """``W⁺ x`` for x [..., V]: [..., d], in float64."""
        x = weights.reshape(-1, weights.shape[-1]).double()
        if self.exact.method == "cholesky":
            solved = self.exact.solve(times_table(x, self.matrix))
        else:  # whitened first: rounding in Wᵀx would be enlarged by the square of the condition
            chunks = in_chunks(self.matrix, torch.float64)
            parts = [x[:, rows] @ self.exact.whiten(chunk) for rows, chunk in chunks]
            solved = self.exact.unwhiten(torch.stack(parts).sum(0))
        return solved.reshape(*weights.shape[:-1], -1)

    def decode(self, embeddings: Tensor) -> Tensor:
        """The tokens [...] of embeddings [..., d]."""
        return self.top(embeddings, 1)[..., 0]

    def top(self, embeddings: Tensor, k: int) -> Tensor:
        """The ``k`` tokens of the largest logits for embeddings [..., d], best first: [..., k]."""
        flat = embeddings.reshape(-1, embeddings.shape[-1]).double()
        parts = [self._top(points, k) for points in some_at_once(self.matrix, flat)]
        return torch.cat(parts).reshape(*embeddings.shape[:-1], k)

    def ranks(self, embeddings: Tensor, ids: Tensor) -> Tensor:
        """The ranks of tokens ``ids`` [...] by the logits for embeddings [..., d]: [...]."""
        return _ranks(self.matrix, self.logits, embeddings, ids)

    def _top(self, e: Tensor, k: int) -> Tensor:
        """For points e [m, d] in float64: [m, k]."""
        rough = self._factored
        if not isinstance(rough, Rough):
            return self._top_exactly(e, k)
        solved = rough.solve(e)
        scores = self._scorer.scores(solved)
        off = rough.expected(e) + self._scorer.moved(solved, rough.longest)
        tokens, sure = leaders(scores, k, 2 * off)
        if bool((open_ := ~sure).any()):
            off = rough.measured(self.matrix, e[open_], scores[open_])
            off = off + self._scorer.moved(solved[open_])
            tokens[open_], sure[open_] = leaders(scores[open_], k, 2 * off)
        if bool((open_ := ~sure).any()):
            tokens[open_] = self._top_exactly(e[open_], k)
        return tokens

    def _top_exactly(self, e: Tensor, k: int) -> Tensor:
        if self.exact.method == "cholesky":
            return self._scorer.top(self.exact.solve(e), k)
        logits = self.logits(e)
        return logits.topk(k).indices if k > 1 else logits.argmax(-1, keepdim=True)


def nearest(table: Tensor, embeddings: Tensor) -> Tensor:
    """The rows of W [V, d] nearest to e [..., d], by argmax(w·e − ½‖w‖²): ids [...]."""
    return nearest_few(table, embeddings, 1)[..., 0]


def nearest_few(table: Tensor, embeddings: Tensor, k: int) -> Tensor:
    """The ``k`` rows of W [V, d] nearest to e [..., d], the nearest first: ids [..., k]."""
    scorer = Scorer(table.detach(), nearest=True)
    flat = embeddings.detach().reshape(-1, embeddings.shape[-1]).double()
    parts = [scorer.top(points, k) for points in some_at_once(table, flat)]
    return torch.cat(parts).reshape(*embeddings.shape[:-1], k)


def ranks_by_nearness(table: Tensor, embeddings: Tensor, ids: Tensor) -> Tensor:
    """The ranks of rows ``ids`` [...] of W [V, d] by nearness to e [..., d]: [...].

    1 is the nearest; equally near rows do not count as before each other.
    """
    scorer = Scorer(table.detach(), nearest=True)
    return _ranks(table, scorer.scores, embeddings, ids)


def _ranks(
    table: Tensor, scored: Callable[[Tensor], Tensor], embeddings: Tensor, ids: Tensor
) -> Tensor:
    """One more than the number of tokens that are ``scored`` [m, d] → [m, V] above ``ids``."""
    flat = embeddings.detach().reshape(-1, embeddings.shape[-1]).double()
    flat_ids = ids.reshape(-1, 1).to(flat.device)
    parts = []
    for points, its in zip(some_at_once(table, flat), some_at_once(table, flat_ids), strict=True):
        scores = scored(points)
        parts.append(1 + (scores > scores.gather(1, its)).sum(1))
    return torch.cat(parts).reshape(ids.shape)
