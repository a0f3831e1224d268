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
from assay.harness.operations.likeliest import Scorer, leaders, some_at_once, working_dtype


@dataclass(frozen=True)
class PseudoInverse:
    """W⁺ as an operator, of W [V, d], the ``matrix`` in its own dtype.

    ``rough`` is a factorisation that is enough for most tokens, None if W is too close to rank
    deficiency; W is factored in float64 (`exact`) when that is needed.
    """

    matrix: Tensor
    rough: Rough | None

    @classmethod
    def of(cls, table: Tensor) -> PseudoInverse:
        """W⁺ of W [V, d], in any floating dtype."""
        w = table.detach()
        return cls(w, Rough.of(w) if working_dtype(w) == torch.float32 else None)

    @cached_property
    def exact(self) -> Factored:
        """W factored in float64."""
        return Factored.of(self.matrix)

    @cached_property
    def table(self) -> Tensor:
        """W [V, d] in float64."""
        return self.matrix.double()

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self.matrix)

    @property
    def _factored(self) -> Factored | Rough:
        """The best factorisation so far."""
        return self.exact if self.rough is None or "exact" in vars(self) else self.rough

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
        e, factor, basis = embeddings.double(), self.exact.factor, self.exact.basis
        flat = e.reshape(-1, e.shape[-1])
        if basis is None:
            solved = torch.cholesky_solve(flat.T, factor).T
            return solved.reshape(e.shape) @ self.table.T
        if self.exact.method == "qr":
            solved = torch.linalg.solve_triangular(factor, flat, upper=True, left=False)
            return torch.matmul(solved.reshape(e.shape), basis.T)
        return e @ factor @ basis.T

    def apply(self, weights: Tensor) -> Tensor:
        """``W⁺ x`` for x [..., V]: [..., d], in float64."""
        x, factor, basis = weights.double(), self.exact.factor, self.exact.basis
        if basis is None:
            flat = (x @ self.table).reshape(-1, self.table.shape[1]).T
            return torch.cholesky_solve(flat, factor).T.reshape(*x.shape[:-1], -1)
        if self.exact.method == "qr":
            flat = (x @ basis).reshape(-1, self.table.shape[1]).T
            solved = torch.linalg.solve_triangular(factor, flat, upper=True).T
            return torch.reshape(solved, (*x.shape[:-1], -1))
        return (x @ basis) @ factor.T

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
        tokens, settled = leaders(scores, k, 2 * off)
        if bool((open_ := ~settled).any()):
            off = rough.measured(self.matrix, e[open_], scores[open_])
            off = off + self._scorer.moved(solved[open_])
            tokens[open_], settled[open_] = leaders(scores[open_], k, 2 * off)
        if bool((open_ := ~settled).any()):
            tokens[open_] = self._top_exactly(e[open_], k)
        return tokens

    def _top_exactly(self, e: Tensor, k: int) -> Tensor:
        if self.exact.basis is None:
            return self._scorer.top(torch.cholesky_solve(e.T, self.exact.factor).T, k)
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


def has_duplicate(table: Tensor) -> Tensor:
    """Whether each row of W [V, d] occurs in it more than once, bit for bit: [V]."""
    group, counts = _groups(table)
    return counts[group] > 1


def _groups(table: Tensor) -> tuple[Tensor, Tensor]:
    """The group of equal rows that contains each row [V], and each group's size."""
    wide = table.double()  # exact, and 16-bit rows cannot be sorted everywhere
    _, group, counts = torch.unique(wide, dim=0, return_inverse=True, return_counts=True)
    return group, counts


@dataclass(frozen=True)
class Recovery:
    """The result of decoding each token's own row by W⁺.

    ``recovered`` [V] (bool); ``margins`` [V], P_tt minus the largest other P_ts, of P = W W⁺;
    ``leverages`` [V], P_tt; ``decoder`` in words.
    """

    recovered: Tensor
    margins: Tensor
    leverages: Tensor
    decoder: str


def recovery(inverse: PseudoInverse, at_once: int = 2048) -> Recovery:
    """Decode every row of W by its pseudo-inverse, ``at_once`` rows at a time (003, equation 3).

    Logits that differ by no more than rounding (`PseudoInverse.rounding`) are tied, including
    those of equal rows; of tied tokens the first is decoded.
    """
    recovered, margins, leverages = [], [], []
    for first in range(0, len(inverse.table), at_once):
        rows = inverse.table[first : first + at_once]
        logits = inverse.logits(rows)
        own = torch.arange(first, first + len(rows), device=rows.device)
        mine = logits.gather(1, own[:, None])[:, 0]
        room = 2 * inverse.rounding * torch.linalg.vector_norm(logits, dim=1)
        tied = logits >= (logits.amax(1) - room)[:, None]
        recovered.append(tied.byte().argmax(1) == own)
        other_logits = logits.scatter(1, own[:, None], -torch.inf)
        margins.append(mine - other_logits.amax(1))
        leverages.append(mine)
    words = f"{inverse.method}, condition {inverse.condition:.3g}, rank {inverse.rank}"
    return Recovery(torch.cat(recovered), torch.cat(margins), torch.cat(leverages), words)


def duplicates(table: Tensor) -> list[list[int]]:
    """Groups of ids whose rows of W [V, d] are the same, bit for bit."""
    group, counts = _groups(table)
    return [(group == g).nonzero()[:, 0].tolist() for g in (counts > 1).nonzero()[:, 0].tolist()]
