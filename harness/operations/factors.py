"""Factorises an embedding matrix [V, d]: exactly in float64, and as roughly as decoding allows.

Exactly: the Gram matrix WᵀW by Cholesky, or W itself by QR or SVD where its condition requires it.
Roughly: a Gram matrix in float32 costs a fraction of one in float64, with an error that the
condition of W enlarges.  Its effect on a score is bounded beforehand, and measured where the bound
is not enough: it still decides most tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from assay.harness.models.machine.symmetric import eigenvalues
from assay.harness.operations.likeliest import ROWS_AT_ONCE, in_chunks, narrowing, working_dtype

CHOLESKY_UP_TO = 1e4
"""Condition numbers of W up to which to solve with its Gram matrix, whose condition is squared."""

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


def triangle(table: Tensor) -> Tensor:
    """R of a QR factorisation of W [V, d], in float64: [min(V, d), d].

    Of some rows at a time, with R of the rows before.
    """
    r = torch.zeros(0, table.shape[1], dtype=torch.float64, device=table.device)
    for _, rows in in_chunks(table, torch.float64, max(ROWS_AT_ONCE, table.shape[1])):
        r = torch.linalg.qr(torch.cat([r, rows]), mode="r").R
    return r


@dataclass(frozen=True)
class Factored:
    """W [V, d] factored in float64.

    ``method`` is ``cholesky``, ``qr`` or ``svd``, ``condition`` the condition number of W (over
    its range), ``rank`` its rank, ``least`` the smallest eigenvalue of WᵀW over its range.
    ``factor`` is R with WᵀW = RᵀR, upper triangular, or by SVD R⁻¹ = V S⁻¹ [d, rank].
    """

    method: str
    condition: float
    rank: int
    least: float
    factor: Tensor

    @classmethod
    def of(cls, table: Tensor) -> Factored:
        """Factor a matrix; rank-deficient ones fall back to the SVD."""
        square = gram(table, torch.float64)
        spectrum = eigenvalues(square).clamp_min(0)
        largest, least = float(spectrum[-1]), float(spectrum[0])
        condition = (largest / least) ** 0.5 if least > 0 else float("inf")
        if condition <= CHOLESKY_UP_TO:
            factor = torch.linalg.cholesky(square, upper=True)
            return cls("cholesky", condition, table.shape[1], least, factor)
        r = triangle(table)
        # Beyond a condition of 1e8 the Gram matrix looks rank-deficient; R does not.
        _, s, vh = torch.linalg.svd(r, full_matrices=False)
        largest, least = float(s[0]), float(s[-1])
        if len(table) >= table.shape[1] and least > 0 and largest / least <= QR_UP_TO:
            return cls("qr", largest / least, table.shape[1], least**2, r)
        significant = s > s[0] * max(table.shape) * EPSILON
        s, vh = s[significant], vh[significant]
        return cls("svd", float(s[0] / s[-1]), len(s), float(s[-1] ** 2), vh.T / s)

    def whiten(self, rows: Tensor) -> Tensor:
        """Rows q = w R⁻¹ of Q for ``rows`` [m, d] of W: [m, rank], with W W⁺ = Q Qᵀ."""
        if self.method == "svd":
            return rows @ self.factor
        return torch.linalg.solve_triangular(self.factor, rows, upper=True, left=False)

    def solve(self, e: Tensor) -> Tensor:
        """(WᵀW)⁺ e for points e [m, d]: [m, d]."""
        return self.unwhiten(self.whiten(e))

    def unwhiten(self, y: Tensor) -> Tensor:
        """``R⁻¹ y`` for y [m, rank]: [m, d]; W⁺ x is that of Qᵀ x."""
        if self.method == "svd":
            return y @ self.factor.T
        return torch.linalg.solve_triangular(self.factor.T, y, upper=False, left=False)


@dataclass(frozen=True)
class Rough:
    """WᵀW ≈ G̃ = ``factor`` ``factor``ᵀ, lower triangular, from products in float32.

    ``longest`` is at least the length of any row of W.  ``doubt`` bounds the error of G̃: a
    solution x is off by at most that share of x, in the norm of WᵀW.  ``noise`` is the rounding
    error of `measured`.  Both assume that the roundings of a sum are independent, and ``doubt``
    assumes the worst order of summation.
    """

    factor: Tensor
    longest: float
    doubt: float
    noise: float

    @classmethod
    def of(cls, table: Tensor) -> Rough | None:
        """Factor a matrix; None where that needs float64: it is too close to rank deficiency."""
        square = gram(table, working_dtype(table))
        factor, failed = torch.linalg.cholesky_ex(square)
        if int(failed):
            return None
        # An element's error is proportional to the lengths of its two columns.
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
        """The condition number of W, within `doubt`."""
        spectrum = eigenvalues(self.factor @ self.factor.T)
        return math.sqrt(float(spectrum[-1] / spectrum[0]))

    def solve(self, e: Tensor) -> Tensor:
        """Solve (WᵀW) x = e for points e [m, d]: x [m, d]."""
        return torch.cholesky_solve(e.T, self.factor).T

    def expected(self, e: Tensor) -> Tensor:
        """A bound for the error of scores w·x of x = `solve` (e): [m].

        No row w is longer than 1 in the norm of (WᵀW)⁻¹.  Twice the doubt allows for computing
        norms by G̃.
        """
        return 2 * self.doubt * self._norms(e)

    def measured(self, table: Tensor, e: Tensor, scores: Tensor) -> Tensor:
        """The same, by the residual of ``scores`` W x [m, V]: r = e − Wᵀ(W x), so w (WᵀW)⁻¹ r."""
        residual = e.clone()
        for rows, chunk in in_chunks(table, scores.dtype):
            residual -= scores[:, rows] @ chunk
        return 2 * self._norms(residual) + self.noise * self._norms(e)

    def _norms(self, points: Tensor) -> Tensor:
        """The lengths of points [m, d] in the norm of G̃⁻¹: [m]."""
        solved = torch.linalg.solve_triangular(self.factor, points.T, upper=False)
        lengths: Tensor = torch.linalg.vector_norm(solved, dim=0)
        return lengths
