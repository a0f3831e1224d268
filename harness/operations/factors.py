"""Factorises an embedding matrix [V, d]: exactly in float64, and as roughly as decoding allows.

Exactly: the Gram matrix WᵀW by Cholesky, or W itself by QR or SVD where its condition says so.
Roughly: a Gram matrix in float32 costs a fraction of one in float64, and leaves an error that the
condition of W enlarges.  How far that can move a score is bounded beforehand, and measured where
the bound does not do: most tokens are decided all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from assay.harness.operations.likeliest import ROWS_AT_ONCE, in_chunks, narrowing, working_dtype

CHOLESKY_UP_TO = 1e4
"""Condition numbers of W up to which its Gram matrix, whose condition is the square, is solved."""

QR_UP_TO = 1e10
"""Condition numbers up to which W counts as of full column rank in float64."""

EPSILON = torch.finfo(torch.float64).eps

COLUMNS_AT_ONCE = 128
"""Columns of a strip of the upper triangle: narrower ones are slow, wider ones wasteful."""

DOUBT_UP_TO = 0.5
"""The relative error up to which norms by a rough matrix are right within a factor of 2."""


def gram(table: Tensor, dtype: torch.dtype) -> Tensor:
    """WᵀW [d, d] in float64, from products in ``dtype``.

    Only the upper triangle is computed; sums over chunks of rows are in float64.
    """
    width = table.shape[1]
    upper = torch.zeros(width, width, dtype=torch.float64, device=table.device)
    for _, rows in in_chunks(table, dtype):
        for first in range(0, width, COLUMNS_AT_ONCE):
            strip = slice(first, first + COLUMNS_AT_ONCE)
            upper[strip, first:] += rows[:, strip].T @ rows[:, first:]
    return upper.triu() + upper.triu(1).T


@dataclass(frozen=True)
class Factored:
    """W [V, d] factored in float64.

    ``method`` is by what (``cholesky``, ``qr`` or ``svd``), ``condition`` the condition number of
    W (over its range), ``rank`` its rank, ``least`` the least eigenvalue of WᵀW over its range;
    ``factor`` and ``basis`` are the method's own.
    """

    method: str
    condition: float
    rank: int
    least: float
    factor: Tensor
    basis: Tensor | None = None

    @classmethod
    def of(cls, table: Tensor) -> Factored:
        """Rank-deficient tables fall back to the SVD."""
        square = gram(table, torch.float64)
        spectrum = torch.linalg.eigvalsh(square).clamp_min(0)
        largest, least = float(spectrum[-1]), float(spectrum[0])
        condition = (largest / least) ** 0.5 if least > 0 else float("inf")
        if condition <= CHOLESKY_UP_TO:
            factor = torch.linalg.cholesky(square)
            return cls("cholesky", condition, table.shape[1], least, factor)
        w = table.double()
        if w.shape[0] >= w.shape[1]:
            q, r = torch.linalg.qr(w)
            # The Gram matrix cannot tell a condition beyond 1e8 from a missing rank; R can.
            sizes = torch.linalg.svdvals(r)
            largest, least = float(sizes[0]), float(sizes[-1])
            if least > 0 and largest / least <= QR_UP_TO:
                return cls("qr", largest / least, w.shape[1], least**2, r, q)
        u, s, vh = torch.linalg.svd(w, full_matrices=False)
        kept = s > s[0] * max(w.shape) * EPSILON
        u, s, vh = u[:, kept], s[kept], vh[kept]
        return cls("svd", float(s[0] / s[-1]), len(s), float(s[-1] ** 2), vh.T / s, u)


@dataclass(frozen=True)
class Rough:
    """WᵀW ≈ G̃ = ``factor`` ``factor``ᵀ, lower triangular, from products in float32.

    ``longest`` is at least the length of any row of W.  ``doubt`` bounds how far G̃ is off: by that
    share of x, in the norm of WᵀW, is a solution x off.  ``noise`` is what rounding adds to what
    is `measured` of it.  Both take the roundings of a sum to be independent of one another, and
    ``doubt`` takes sums to be added up in the worst order.
    """

    factor: Tensor
    longest: float
    doubt: float
    noise: float

    @classmethod
    def of(cls, table: Tensor) -> Rough | None:
        """None where W has to be factored in float64: it is too near to a missing rank."""
        square = gram(table, working_dtype(table))
        factor, failed = torch.linalg.cholesky_ex(square)
        if int(failed):
            return None
        # An element is off in proportion to the lengths of its two columns.
        lengths = square.diagonal().sqrt()
        spread = float(torch.linalg.solve_triangular(factor, lengths.diag(), upper=False).norm())
        unit, narrowed = torch.finfo(working_dtype(table)).eps / 2, narrowing(table)
        doubt = (ROWS_AT_ONCE**0.5 * unit + narrowed) * spread**2
        if doubt > DOUBT_UP_TO:
            return None
        return cls(factor, float(lengths.norm()), doubt, (4 * unit + narrowed) * spread)

    method = "cholesky"

    @property
    def rank(self) -> int:
        """The rank of W: full."""
        return len(self.factor)

    @cached_property
    def condition(self) -> float:
        """The condition number of W, as well as `doubt` lets it be known."""
        spectrum = torch.linalg.eigvalsh(self.factor @ self.factor.T)
        return math.sqrt(float(spectrum[-1] / spectrum[0]))

    def solve(self, e: Tensor) -> Tensor:
        """Solve (WᵀW) x = e for points e [m, d]: x [m, d]."""
        return torch.cholesky_solve(e.T, self.factor).T

    def expected(self, e: Tensor) -> Tensor:
        """How far off scores w·x of x = `solve` (e) may be: [m].

        No row w is longer than 1 in the norm of (WᵀW)⁻¹.  Twice the doubt leaves room for taking
        norms by G̃.
        """
        return 2 * self.doubt * self._norms(e)

    def measured(self, table: Tensor, e: Tensor, scores: Tensor) -> Tensor:
        """The same, by what ``scores`` W x [m, V] leave of e: r = e − Wᵀ(W x), so w (WᵀW)⁻¹ r."""
        left = e.clone()
        for rows, chunk in in_chunks(table, scores.dtype):
            left -= scores[:, rows] @ chunk
        return 2 * self._norms(left) + self.noise * self._norms(e)

    def _norms(self, points: Tensor) -> Tensor:
        """Of [m, d], in the norm of G̃⁻¹: [m]."""
        solved = torch.linalg.solve_triangular(self.factor, points.T, upper=False)
        lengths: Tensor = torch.linalg.vector_norm(solved, dim=0)
        return lengths
