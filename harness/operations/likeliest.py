"""Finds the rows of a matrix that score highest at a point: fast, with the answer of float64.

All rows are scored in the matrix's own precision (float32 at least).  A bound says how far
rounding can move a score in any order of a sum; where rows are too close for it, the few
leading rows are scored again in float64, or all rows where the leading ones may not contain the
answer.  Of equal rows the first comes first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

ROWS_AT_ONCE = 2048
"""Rows of a matrix that are widened at a time: a copy of all would not fit into a cache."""

SCORES_AT_ONCE = 2**24
"""Scores in memory at a time."""

ON_ACCELERATOR = 2**4
"""The multiple of `SCORES_AT_ONCE` on an accelerator, where each operation has to be launched."""

BYTES_AT_ONCE = 2**28
"""Bytes of the largest copy of rows in float64."""

AGAIN_AT_ONCE = 16
"""Points at a time for scoring all rows in float64."""

FEW = 64
"""Number of points up to which a product is computed transposed."""

SPARE = 8
"""Rows that are scored again in addition to the requested ones."""

NARROWED = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-7}
"""The relative rounding of float32 factors, by `torch.get_float32_matmul_precision`."""


def working_dtype(table: Tensor) -> torch.dtype:
    """The dtype of products with ``table``: float32, or its own if wider."""
    return torch.float64 if table.dtype == torch.float64 else torch.float32


def scores_at_once(table: Tensor) -> int:
    """Scores with ``table`` in memory at a time, where it lies."""
    return SCORES_AT_ONCE * (1 if table.device.type == "cpu" else ON_ACCELERATOR)


def rows_at_once(table: Tensor) -> int:
    """Rows of ``table`` [V, d] that are widened at a time: on an accelerator as many as fit."""
    if table.device.type == "cpu":
        return ROWS_AT_ONCE
    return max(ROWS_AT_ONCE, BYTES_AT_ONCE // (table.shape[1] * working_dtype(table).itemsize))


def in_chunks(
    table: Tensor, dtype: torch.dtype, at_once: int = 0
) -> Iterator[tuple[slice, Tensor]]:
    """``table`` [V, d] in ``dtype``, some rows at a time, with their slice."""
    at_once = at_once or ROWS_AT_ONCE
    for first in range(0, len(table), at_once):
        rows = slice(first, first + at_once)
        yield rows, table[rows].to(dtype)


def times_rows(points: Tensor, table: Tensor) -> Tensor:
    """``points`` [..., d] times every row of ``table`` [V, d], in float64: [..., V]."""
    p = points.double()
    return torch.cat([p @ rows.T for _, rows in in_chunks(table, torch.float64)], dim=-1)


def times_table(weights: Tensor, table: Tensor) -> Tensor:
    """``weights`` [..., V] times ``table`` [V, d], in float64: [..., d]."""
    x = weights.double()
    sums = x.new_zeros(*x.shape[:-1], table.shape[1])
    for rows, chunk in in_chunks(table, torch.float64):
        sums += x[..., rows] @ chunk
    return sums


def std(table: Tensor) -> float:
    """The standard deviation of the elements of ``table`` [V, d], in float64."""
    if table.numel() * torch.float64.itemsize <= BYTES_AT_ONCE:
        return float(table.double().std())
    chunks = functools.partial(in_chunks, table, torch.float64)
    mean = sum(float(rows.sum()) for _, rows in chunks()) / table.numel()
    squares = sum(float((rows - mean).square_().sum()) for _, rows in chunks())
    return math.sqrt(squares / (table.numel() - 1))


def some_at_once(table: Tensor, points: Tensor) -> Sequence[Tensor]:
    """``points`` [m, d] in groups whose scores with ``table`` [V, d] fit in memory together."""
    near = BYTES_AT_ONCE // (2 * SPARE * torch.float64.itemsize * table.shape[1])
    return torch.split(points, max(16, min(scores_at_once(table) // len(table), near)))


def narrowing(table: Tensor) -> float:
    """The relative error of a product whose factors are narrowed first."""
    if working_dtype(table) == torch.float64:
        return 0.0
    return 3 * NARROWED[torch.get_float32_matmul_precision()]


def rounding(table: Tensor) -> float:
    """γ: a row's product w·p in `working_dtype` is off by at most γ ‖w‖ ‖p‖."""
    return (table.shape[1] + 4) * torch.finfo(working_dtype(table)).eps / 2 + narrowing(table)


def leaders(scores: Tensor, k: int, room: Tensor) -> tuple[Tensor, Tensor]:
    """The best ``k`` rows by ``scores`` [m, V]: [m, k]; and whether each leads the next by more
    than ``room`` [m], so that they are the best even if each score moved by half of that: [m].
    """
    values, ids = scores.topk(min(scores.shape[1], k + 1))
    leads = (values[:, :-1] - values[:, 1:]).double()
    return ids[:, :k], (leads > room[:, None]).all(1) & values.isfinite().all(1)


@dataclass(frozen=True)
class Scorer:
    """Scores rows w of ``table`` [V, d] at points p: w·p, or w·p − ½‖w‖² for the ``nearest``."""

    table: Tensor
    nearest: bool = False

    @cached_property
    def lengths(self) -> Tensor:
        """‖w‖ of every row: [V]."""
        chunks = in_chunks(self.table, working_dtype(self.table))
        return torch.cat([torch.linalg.vector_norm(rows, dim=1) for _, rows in chunks])

    @cached_property
    def longest(self) -> float:
        """The largest ‖w‖."""
        return float(self.lengths.max())

    def scores(self, points: Tensor) -> Tensor:
        """The scores of all rows at ``points`` [m, d]: [m, V], rounded."""
        left = points.to(working_dtype(self.table)).contiguous()
        right = left.T.contiguous()
        out = left.new_empty(len(points), len(self.table))
        for rows, chunk in in_chunks(self.table, left.dtype, rows_at_once(self.table)):
            # A few points are faster as columns.
            out[:, rows] = (chunk @ right).T if len(points) <= FEW else left @ chunk.T
        return out.sub_(0.5 * self.lengths.square()) if self.nearest else out

    def moved(self, points: Tensor, longest: float | None = None) -> Tensor:
        """The largest rounding error of any of `scores`: [m]."""
        longest = self.longest if longest is None else longest
        sizes: Tensor = torch.linalg.vector_norm(points, dim=1)
        return (sizes + 2 * longest * self.nearest) * (rounding(self.table) * longest)

    def top(self, points: Tensor, k: int) -> Tensor:
        """The ``k`` rows that score highest at points [m, d] (float64), best first: ids [m, k].

        A point that is not finite gets the first rows.
        """
        scores = self.scores(points)
        ids, certain = leaders(scores, k, 2 * self.moved(points))
        if not bool(certain.all()):
            ids[~certain] = self._settled(points[~certain], k, scores[~certain])
        return ids

    def _settled(self, points: Tensor, k: int, scores: Tensor) -> Tensor:
        """The same for points where rounding may have changed the order of ``scores`` [m, V]."""
        values, ids = scores.topk(min(len(self.table), k + SPARE))
        best = self._in_float64(points, ids, k)
        missing = (values[:, k - 1] - values[:, -1]).double() <= 2 * self.moved(points)
        if ids.shape[1] == len(self.table):
            missing = torch.zeros_like(missing)
        again = (missing | ~values.isfinite().all(1)).nonzero()[:, 0]
        for first in range(0, len(again), AGAIN_AT_ONCE):
            some = again[first : first + AGAIN_AT_ONCE]
            best[some] = self._of_all(points[some], k)
        return best

    def _in_float64(self, points: Tensor, ids: Tensor, k: int) -> Tensor:
        """The best ``k`` of the rows ``ids`` [m, c] at points [m, d], scored in float64: [m, k].

        Scores are relative to the best row: the closer two rows are, the less rounding moves their
        difference, so that a row at its own point leads every other.  Equal rows score the same
        and keep the order of their ids.
        """
        ids = ids.sort(1).values
        rows = self.table[ids].double()
        scores = (rows * points[:, None]).sum(-1)
        if self.nearest:
            scores -= 0.5 * rows.square().sum(-1)
        best = rows[torch.arange(len(ids), device=ids.device), scores.argmax(1)][:, None]
        apart = rows - best
        from_best = points[:, None] - best - 0.5 * apart if self.nearest else points[:, None]
        scores = (apart * from_best).sum(-1).gather(1, self._first_equals(ids))
        order = scores.argsort(dim=1, descending=True, stable=True)
        return ids.gather(1, order)[:, :k]

    def _first_equals(self, ids: Tensor) -> Tensor:
        """For the rows ``ids`` [m, c], the column of the first row equal to each: [m, c]."""
        distinct, where = torch.unique(ids, return_inverse=True)
        wide = self.table[distinct].double()  # exact, and 16-bit rows cannot be sorted everywhere
        group = torch.unique(wide, dim=0, return_inverse=True)[1][where]
        group, order = group.sort(dim=1, stable=True)
        columns = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        begins = group.diff(dim=1, prepend=group[:, :1] - 1) != 0
        first = order.gather(1, torch.where(begins, columns, 0).cummax(1).values)
        return torch.empty_like(first).scatter_(1, order, first)

    def _of_all(self, points: Tensor, k: int) -> Tensor:
        """The best ``k`` of all rows at points [m, d], scored in float64: [m, k]."""
        parts = []
        for _, rows in in_chunks(self.table, torch.float64):
            less = 0.5 * rows.square().sum(1) if self.nearest else 0
            parts.append(points @ rows.T - less)
        scores = torch.cat(parts, dim=1)
        gamma = (self.table.shape[1] + 4) * torch.finfo(torch.float64).eps
        room = 2 * gamma * self.longest * (torch.linalg.vector_norm(points, dim=1) + self.longest)
        as_good = scores >= (scores.topk(k).values[:, -1] - room)[:, None]
        best = torch.arange(k, device=points.device).repeat(len(points), 1)
        for i in points.isfinite().all(1).nonzero()[:, 0].tolist():
            best[i] = self._of_leading(points[i : i + 1], as_good[i].nonzero()[:, 0], k)
        return best

    def _of_leading(self, point: Tensor, ids: Tensor, k: int) -> Tensor:
        """The best ``k`` of the rows ``ids`` [c] at ``point`` [1, d]: the best of the best."""
        while len(ids) > max(ROWS_AT_ONCE, 2 * k):
            some = ids.split(max(ROWS_AT_ONCE, 2 * k))
            ids = torch.cat(
                [self._in_float64(point, each[None], min(k, len(each)))[0] for each in some]
            )
        return self._in_float64(point, ids[None], k)[0]
