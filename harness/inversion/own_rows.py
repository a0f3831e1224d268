"""Which tokens the pseudo-inverse recovers from their own rows of the embedding matrix.

W is [V, d] and P = W W⁺ = Q Qᵀ; token t is recovered if P_tt > P_ts for every other s (003,
equation 3).  The leverages P_tt cost V d² operations, and all of P costs V² d.  In a large
vocabulary most products are only bounded, by some of the columns and the lengths of what is left;
all of P is computed for a sample of tokens, whose margins are known.  Float32 has a bound of its
rounding, and float64 decides what that leaves open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.harness.inversion.decoding import PseudoInverse
from assay.harness.operations.equal_rows import first_equal
from assay.harness.operations.likeliest import in_chunks, rounding, some_at_once

BLOCK = 512
"""Rows and columns of a block of products: its maxima are taken while it is in a core's cache."""

MEASURED = 2048
"""Tokens whose margins are computed, at most; of a larger vocabulary the others' are bounded."""

SHARES = 32
"""A bound takes a multiple of this part of the columns."""

NOISE = 6
"""Standard deviations by which products of unrelated rows may be above zero."""

CLEARLY = 0.98
"""A bound counts up to this part of what it is compared with, far from any rounding."""

SURE = 1e-3
"""The largest relative error of M in `recovered_after`, for which its bound allows."""

ROOM = 1.01
"""Factor of a bound that allows for terms of second order in the rounding of a number."""


@dataclass(frozen=True)
class Recovery:
    """The result of decoding each token's own row by W⁺.

    ``recovered`` [V] (bool); ``leverages`` [V], P_tt of P = W W⁺; ``others`` [V], at least the
    largest other P_ts of each row, within ``doubts`` [V]; ``measured`` [m], the tokens of which
    it is not only a bound; ``decoder`` in words.
    """

    recovered: Tensor
    leverages: Tensor
    others: Tensor
    doubts: Tensor
    measured: Tensor
    decoder: str

    @property
    def margins(self) -> Tensor:
        """P_tt minus the largest other P_ts of the tokens ``measured``: [m]."""
        return (self.leverages - self.others)[self.measured]


def recovery(inverse: PseudoInverse) -> Recovery:
    """Decode every row of W by its pseudo-inverse.

    Logits that differ by no more than rounding (`PseudoInverse.rounding`) are tied, including
    those of equal rows; of tied tokens the first is decoded.  In a vocabulary of more than
    `MEASURED` tokens, margins are measured of every second or further one, and of those whose
    bounds do not decide them.
    """
    rows, leverages = whitened(inverse)
    step = -(-len(rows) // MEASURED)
    sample = torch.arange(0, len(rows), step, device=rows.device)
    others = _largest_of(rows, sample, leverages).double()
    lengths = leverages.sqrt()
    by_rounding = ROOM * rounding(rows) * lengths * lengths.max()
    doubts = by_rounding + torch.finfo(rows.dtype).tiny + 2 * _room(inverse, leverages)
    room = _room(inverse, leverages)
    margins = leverages - others
    near_tie = margins <= doubts + room
    near_tie[sample] &= margins[sample] >= -(doubts + room)[sample]
    least = (margins + doubts)[sample].min()
    may_be_least = torch.zeros_like(near_tie)
    may_be_least[sample] = (margins - doubts)[sample] <= least
    recovered = margins > 0
    ids = (near_tie | may_be_least).nonzero()[:, 0]
    recovered[ids], exact = _in_float64(inverse, ids)
    others[ids], doubts[ids] = leverages[ids] - exact, room[ids]
    measured = torch.cat([sample, ids]).unique()
    words = f"{inverse.method}, condition {inverse.condition:.3g}, rank {inverse.rank}"
    return Recovery(recovered, leverages, others, doubts, measured, words)


def recovered_after(
    changed: PseudoInverse, ids: Tensor, before: PseudoInverse, result: Recovery
) -> Tensor:
    """`Recovery.recovered` [V] of a matrix W' that differs in few rows ``ids`` from W ``before``.

    With U the old and the new rows, P' = P - A M Aᵀ in the other rows, where A = W (WᵀW)⁻¹ Uᵀ is
    [V, few]: that bounds by how much a margin of ``result`` has changed, and decides most rows.
    """
    if before.rank < before.matrix.shape[1] or changed.rank < before.rank:
        return recovery(changed).recovered
    old, new = (each.matrix[ids].double() for each in (before, changed))
    both = torch.cat([old, new])
    signs = torch.ones(len(both), dtype=torch.float64, device=both.device)
    signs[: len(ids)] = -1
    inner = signs.diag() + both @ before.exact.solve(both).T
    if 4 * before.rounding * float(torch.linalg.cond(inner)) > SURE:
        return recovery(changed).recovered
    middle = torch.linalg.inv(inner)
    a = before.logits(both).T
    sizes = a.abs() + before.rounding * torch.linalg.vector_norm(a, dim=0)
    others = torch.ones(len(a), dtype=torch.bool, device=a.device)
    others[ids] = False
    by = sizes @ (middle.abs() + SURE * middle.norm()) @ sizes[others].amax(0)
    of_new = changed.logits(new).amax(0)
    own, of_others = result.leverages, result.others + by
    doubts = result.doubts + by + 3 * _room(changed, own + by)
    recovered = own - torch.maximum(of_others, of_new) > doubts
    lost = of_new - own > doubts
    recovered[ids], lost[ids] = False, False
    open_ = (~recovered & ~lost).nonzero()[:, 0]
    recovered[open_] = _in_float64(changed, open_)[0]
    return recovered


def whitened(inverse: PseudoInverse) -> tuple[Tensor, Tensor]:
    """Q [V, rank] with W W⁺ = Q Qᵀ, in float32, and the leverages [V], in float64: the squares of
    the lengths of its rows.
    """
    table, exact = inverse.matrix, inverse.exact
    rows = torch.empty(len(table), exact.rank, dtype=torch.float32, device=table.device)
    leverages = torch.empty(len(table), dtype=torch.float64, device=table.device)
    for some, chunk in in_chunks(table, torch.float64):
        q = exact.whiten(chunk)
        rows[some], leverages[some] = q, q.square().sum(1)
    return rows, leverages


def _largest_of(rows: Tensor, sample: Tensor, leverages: Tensor) -> Tensor:
    """For each of the rows [V, r], at least its largest product with another: [V]; that product
    for those in ``sample``.
    """
    if len(sample) == len(rows):
        return largest_others(rows)
    best = bounded_others(rows, leverages)
    for some in torch.split(sample, BLOCK):
        products = rows[some] @ rows.T
        products.scatter_(1, some[:, None], -torch.inf)
        best[some] = products.amax(1)
    return best


def largest_others(rows: Tensor, at_once: int = BLOCK) -> Tensor:
    """For each of the rows q_t [V, r], the largest product q_t·q_s with another: [V].

    Every block of products serves its rows and, by symmetry, its columns.
    """
    best = rows.new_full((len(rows),), -torch.inf)
    for some, others in _pairs(len(rows), at_once):
        _enter(best, rows, some, others)
    return best


def bounded_others(rows: Tensor, leverages: Tensor, at_once: int = BLOCK) -> Tensor:
    """For each of the rows [V, r], a number that is no less than its products with others: [V].

    Of two blocks of rows, each of similar lengths, a product is at most that of the first columns
    plus that of the lengths of the rest.  Where this is not clearly below the squares of all
    these lengths, the largest products of the blocks are computed.
    """
    order = leverages.argsort()
    rows = spread_over_columns(rows, order)
    rest = dict(zip(_widths(rows.shape[1]), _rests(rows).T, strict=True))
    shortest = leverages[order][::at_once].tolist()
    longest = [*shortest[1:], float(leverages.max())]
    best = rows.new_full((len(rows),), -torch.inf)
    for some, others in _pairs(len(rows), at_once):
        least = shortest[some.start // at_once]
        if k := _columns_needed(least, longest[others.start // at_once], rows.shape[1]):
            a, b = (torch.cat([rows[each, :k], rest[k][each, None]], 1) for each in (some, others))
            products = a @ b.T
            if some == others:
                products.fill_diagonal_(-torch.inf)
            bound = products.max()
            if bound < CLEARLY * least:
                best[some] = best[some].clamp_min(bound)
                best[others] = best[others].clamp_min(bound)
                continue
        _enter(best, rows, some, others)
    return torch.empty_like(best).scatter_(0, order, best)


def spread_over_columns(rows: Tensor, order: Tensor) -> Tensor:
    """The rows [V, r] in their ``order`` [V] and in other coordinates, in which products are the
    same and the first columns have about their share of each row: the Fourier transform, after
    some signs are turned.
    """
    size = rows.shape[1]
    coins = torch.randint(2, (size,), generator=torch.Generator().manual_seed(0), device="cpu")
    signs = (2 * coins - 1).to(rows.device)
    columns = [0, *range(2, size + 1)]  # the first number is real, as is the last of an even count
    spread = torch.empty_like(rows)
    for some, ids in in_chunks(order, order.dtype):
        numbers = torch.fft.rfft(rows[ids].double() * signs, norm="ortho")
        numbers[:, 1 : (size + 1) // 2] *= math.sqrt(2)
        spread[some] = torch.view_as_real(numbers).flatten(1)[:, columns].to(rows.dtype)
    return spread


def _rests(rows: Tensor) -> Tensor:
    """The length of what each row [V, r] has after its first columns, for each of `_widths`."""
    rests = []
    for _, chunk in in_chunks(rows, torch.float64):
        parts = chunk.square().tensor_split(_widths(rows.shape[1]), dim=1)[1:]
        sums = torch.stack([part.sum(1) for part in parts], 1)
        rests.append(sums.flip(1).cumsum(1).flip(1).sqrt().to(rows.dtype))
    return torch.cat(rests)


def _widths(size: int) -> list[int]:
    """Numbers of columns that a bound may take, of ``size``."""
    return sorted({max(1, size * i // SHARES) for i in range(1, SHARES)})


def _columns_needed(least: float, most: float, size: int) -> int:
    """Columns that bound products of unrelated rows, of squared lengths ``least`` and ``most``,
    below ``least``; zero if that takes too many of all ``size``.
    """
    for k in _widths(size):
        bound = (1 - k / size) + NOISE * math.sqrt(k) / size
        if bound * math.sqrt(most) < CLEARLY * math.sqrt(least):
            return k
    return 0


def _pairs(count: int, at_once: int) -> Iterator[tuple[slice, slice]]:
    """Every two blocks of ``count`` rows, once, and each with itself."""
    blocks = [slice(first, first + at_once) for first in range(0, count, at_once)]
    return itertools.combinations_with_replacement(blocks, 2)


def _enter(best: Tensor, rows: Tensor, some: slice, others: slice) -> None:
    """Raise ``best`` [V] to the largest products of two blocks of ``rows``."""
    products = rows[some] @ rows[others].T
    if some == others:
        products.fill_diagonal_(-torch.inf)
    else:
        best[others] = torch.maximum(best[others], products.amax(0))
    best[some] = torch.maximum(best[some], products.amax(1))


def _room(inverse: PseudoInverse, leverages: Tensor) -> Tensor:
    """By how much two logits of each row may differ and count as tied: [V].

    A row of P is as long as the root of its leverage: P² = P.
    """
    return 2 * inverse.rounding * leverages.sqrt()


def _in_float64(inverse: PseudoInverse, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Whether the tokens ``ids`` [m] are recovered, and their margins: [m] each.

    Equal rows have equal logits, so one of them serves all.
    """
    distinct, group = torch.unique(first_equal(inverse.matrix)[ids], return_inverse=True)
    decoded = torch.empty_like(distinct)
    margins = torch.empty(len(distinct), dtype=torch.float64, device=ids.device)
    for some in some_at_once(inverse.matrix, torch.arange(len(distinct), device=ids.device)):
        own = distinct[some, None]
        logits = inverse.logits(inverse.matrix[own[:, 0]])
        room = 2 * inverse.rounding * torch.linalg.vector_norm(logits, dim=1)
        tied = logits >= (logits.amax(1) - room)[:, None]
        decoded[some] = tied.byte().argmax(1)
        mine = logits.gather(1, own)[:, 0]
        margins[some] = mine - logits.scatter_(1, own, -torch.inf).amax(1)
    return decoded[group] == ids, margins[group]
