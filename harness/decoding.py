"""From embeddings back to tokens: the pseudo-inverse by factorisation, and the nearest row.

W is [V, d] and W⁺ = (WᵀW)⁻¹Wᵀ is [d, V]; document 003 decodes by ``argmax(e W⁺)``.  W⁺ is never
formed: the d × d Gram matrix is factored in float64, and by QR or SVD where its condition says
so (INVERSION, 'Linear algebra').
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CHOLESKY_UP_TO = 1e4
"""Condition numbers of W up to which its Gram matrix, whose condition is the square, is solved."""

QR_UP_TO = 1e10
"""Condition numbers up to which W counts as of full column rank in float64."""

EPSILON = torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class PseudoInverse:
    """W⁺ as an operator.

    ``method`` is what it was factored by (``cholesky``, ``qr`` or ``svd``), ``condition`` the
    condition number of W (over its range), ``rank`` its rank; ``factor`` and ``basis`` are the
    method's own.
    """

    table: Tensor
    method: str
    condition: float
    rank: int
    least: float
    factor: Tensor
    basis: Tensor | None = None

    @classmethod
    def of(cls, table: Tensor) -> PseudoInverse:
        """Factor W [V, d], in float64; rank-deficient tables fall back to the SVD."""
        w = table.detach().double()
        gram = w.T @ w
        spectrum = torch.linalg.eigvalsh(gram).clamp_min(0)
        largest, least = float(spectrum[-1]), float(spectrum[0])
        condition = (largest / least) ** 0.5 if least > 0 else float("inf")
        if condition <= CHOLESKY_UP_TO:
            factor = torch.linalg.cholesky(gram)
            return cls(w, "cholesky", condition, w.shape[1], least, factor)
        if w.shape[0] >= w.shape[1]:
            q, r = torch.linalg.qr(w)
            # The Gram matrix cannot tell a condition beyond 1e8 from a missing rank; R can.
            sizes = torch.linalg.svdvals(r)
            largest, least = float(sizes[0]), float(sizes[-1])
            if least > 0 and largest / least <= QR_UP_TO:
                return cls(w, "qr", largest / least, w.shape[1], least**2, r, q)
        u, s, vh = torch.linalg.svd(w, full_matrices=False)
        kept = s > s[0] * max(w.shape) * EPSILON
        u, s, vh = u[:, kept], s[kept], vh[kept]
        return cls(w, "svd", float(s[0] / s[-1]), len(s), float(s[-1] ** 2), vh.T / s, u)

    @property
    def rounding(self) -> float:
        """The relative error to expect of `logits` in float64."""
        power = 2 if self.method == "cholesky" else 1
        return EPSILON * self.condition**power * self.table.shape[1]

    def logits(self, embeddings: Tensor) -> Tensor:
        """``e W⁺`` for e [..., d]: [..., V], in float64."""
        e = embeddings.double()
        if self.method == "cholesky":
            flat = e.reshape(-1, e.shape[-1]).T
            solved = torch.cholesky_solve(flat, self.factor).T.reshape(e.shape)
            return solved @ self.table.T
        assert self.basis is not None
        if self.method == "qr":
            flat = e.reshape(-1, e.shape[-1])
            solved = torch.linalg.solve_triangular(self.factor, flat, upper=True, left=False)
            return solved.reshape(e.shape) @ self.basis.T
        return e @ self.factor @ self.basis.T

    def apply(self, weights: Tensor) -> Tensor:
        """``W⁺ x`` for x [..., V]: [..., d], in float64."""
        x = weights.double()
        if self.method == "cholesky":
            flat = (x @ self.table).reshape(-1, self.table.shape[1]).T
            return torch.cholesky_solve(flat, self.factor).T.reshape(*x.shape[:-1], -1)
        assert self.basis is not None
        if self.method == "qr":
            flat = (x @ self.basis).reshape(-1, self.table.shape[1]).T
            solved = torch.linalg.solve_triangular(self.factor, flat, upper=True)
            return solved.T.reshape(*x.shape[:-1], -1)
        return (x @ self.basis) @ self.factor.T

    def decode(self, embeddings: Tensor) -> Tensor:
        """The tokens [...] of embeddings [..., d]."""
        return self.logits(embeddings).argmax(-1)


def nearest(table: Tensor, embeddings: Tensor) -> Tensor:
    """The rows of W [V, d] nearest to e [..., d], by argmax(w·e − ½‖w‖²): ids [...]."""
    w = table.detach().double()
    return (embeddings.double() @ w.T - 0.5 * w.square().sum(1)).argmax(-1)


def has_twin(table: Tensor) -> Tensor:
    """Whether each row of W [V, d] stands in it more than once, bit for bit: [V]."""
    group, counts = _groups(table)
    return counts[group] > 1


def _groups(table: Tensor) -> tuple[Tensor, Tensor]:
    """The group of equal rows that each row [V] is in, and how many rows each group has."""
    wide = table.double()  # exact, and 16-bit rows cannot be sorted everywhere
    _, group, counts = torch.unique(wide, dim=0, return_inverse=True, return_counts=True)
    return group, counts


@dataclass(frozen=True)
class Recovery:
    """How each token of the vocabulary fares when its own row is decoded by W⁺.

    ``recovered`` [V] (bool); ``margins`` [V], P_tt less the largest other P_ts, of P = W W⁺;
    ``leverages`` [V], P_tt; ``decoder`` in words.
    """

    recovered: Tensor
    margins: Tensor
    leverages: Tensor
    decoder: str


def recovery(inverse: PseudoInverse, at_once: int = 2048) -> Recovery:
    """Decode every row of W by its pseudo-inverse, ``at_once`` rows at a time (003, equation 3).

    A tie with another row is no recovery of the later of the two.
    """
    recovered, margins, leverages = [], [], []
    for first in range(0, len(inverse.table), at_once):
        rows = inverse.table[first : first + at_once]
        logits = inverse.logits(rows)
        own = torch.arange(first, first + len(rows), device=rows.device)
        mine = logits.gather(1, own[:, None])[:, 0]
        recovered.append(logits.argmax(1) == own)
        others = logits.scatter(1, own[:, None], -torch.inf)
        margins.append(mine - others.amax(1))
        leverages.append(mine)
    words = f"{inverse.method}, condition {inverse.condition:.3g}, rank {inverse.rank}"
    return Recovery(torch.cat(recovered), torch.cat(margins), torch.cat(leverages), words)


def duplicates(table: Tensor) -> list[list[int]]:
    """Groups of ids whose rows of W [V, d] are the same, bit for bit."""
    group, counts = _groups(table)
    return [(group == g).nonzero()[:, 0].tolist() for g in (counts > 1).nonzero()[:, 0].tolist()]
