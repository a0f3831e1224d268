"""Which tokens the pseudo-inverse recovers from their own rows of the embedding matrix.

W is [V, d] and P = W W⁺ = Q Qᵀ; token t is recovered if P_tt > P_ts for every other s (003,
equation 3).  The leverages P_tt cost V d² operations, and all of P costs V² d: it is computed in
float32, each half once, and a bound of its rounding says which rows that decides.  Float64 decides
the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.harness.operations.decoding import PseudoInverse
from assay.harness.operations.equal_rows import first_equal
from assay.harness.operations.likeliest import in_chunks, rounding, some_at_once

BLOCK = 512
"""Rows and columns of a block of products: its maxima are taken while it is in a core's cache."""

SURE = 1e-3
"""The largest relative error of M in `recovered_after`, for which its bound allows."""

ROOM = 1.01
"""Factor of a bound that allows for terms of second order in the rounding of a number."""


@dataclass(frozen=True)
class Recovery:
    """The result of decoding each token's own row by W⁺.

    ``recovered`` [V] (bool); ``margins`` [V], P_tt minus the largest other P_ts, of P = W W⁺;
    ``leverages`` [V], P_tt; ``doubts`` [V], the largest errors of the margins; ``decoder`` in
    words.
    """

    recovered: Tensor
    margins: Tensor
    leverages: Tensor
    doubts: Tensor
    decoder: str


def recovery(inverse: PseudoInverse) -> Recovery:
    """Decode every row of W by its pseudo-inverse.

    Logits that differ by no more than rounding (`PseudoInverse.rounding`) are tied, including
    those of equal rows; of tied tokens the first is decoded.  Margins are of float32, and those
    of float64 are used where they may be the least or a tie.
    """
    rows, leverages = whitened(inverse)
    margins = leverages - largest_others(rows).double()
    lengths = leverages.sqrt()
    by_rounding = ROOM * rounding(rows) * lengths * lengths.max()
    doubts = by_rounding + torch.finfo(rows.dtype).tiny + 2 * _room(inverse, leverages)
    room = _room(inverse, leverages)
    near_tie = margins.abs() <= doubts + room
    may_be_least = margins - doubts <= (margins + doubts).min()
    recovered = margins > 0
    ids = (near_tie | may_be_least).nonzero()[:, 0]
    recovered[ids], margins[ids] = _in_float64(inverse, ids)
    doubts[ids] = room[ids]
    words = f"{inverse.method}, condition {inverse.condition:.3g}, rank {inverse.rank}"
    return Recovery(recovered, margins, leverages, doubts, words)


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
    own, of_others = result.leverages, result.leverages - result.margins + by
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


def largest_others(rows: Tensor, at_once: int = BLOCK) -> Tensor:
    """For each of the rows q_t [V, r], the largest product q_t·q_s with another: [V].

    Every block of products serves its rows and, by symmetry, its columns.
    """
    best = rows.new_full((len(rows),), -torch.inf)
    for first in range(0, len(rows), at_once):
        some = slice(first, first + at_once)
        for second in range(first, len(rows), at_once):
            others = slice(second, second + at_once)
            products = rows[some] @ rows[others].T
            if second == first:
                products.fill_diagonal_(-torch.inf)
            else:
                best[others] = torch.maximum(best[others], products.amax(0))
            best[some] = torch.maximum(best[some], products.amax(1))
    return best


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
