"""Finds equal rows of a matrix, by a number computed of each row: rows are never sorted."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.operations.likeliest import in_chunks


def first_equal(table: Tensor) -> Tensor:
    """For each row of W [V, d], the id of the first row equal to it: [V]."""
    first = torch.arange(len(table), device=table.device)
    left, seed = first.clone(), 0
    while len(left):
        _, group, counts = torch.unique(
            _numbers(table, left, seed), return_inverse=True, return_counts=True
        )
        least = torch.full_like(counts, len(table)).scatter_reduce(0, group, left, "amin")
        some = (counts[group] > 1).nonzero()[:, 0]
        ids, others = left[some], least[group[some]]
        equal = _are_equal(table, ids, others)
        first[ids[equal]] = others[equal]
        # Rows that are not equal in spite of their number; NaN is not equal to itself.
        left, seed = ids[~equal & _are_equal(table, ids, ids)], seed + 1
    return first


def has_duplicate(table: Tensor) -> Tensor:
    """Whether each row of W [V, d] occurs in it more than once: [V]."""
    first = first_equal(table)
    return torch.bincount(first, minlength=len(table))[first] > 1


def duplicates(table: Tensor) -> list[list[int]]:
    """Groups of ids whose rows of W [V, d] are equal, in the order of their first ids."""
    groups: dict[int, list[int]] = {}
    first = first_equal(table)
    several = (torch.bincount(first, minlength=len(table))[first] > 1).nonzero()[:, 0]
    for token, group in zip(several.tolist(), first[several].tolist(), strict=True):
        groups.setdefault(group, []).append(token)
    return list(groups.values())


def _numbers(table: Tensor, ids: Tensor, seed: int) -> Tensor:
    """A number of each of the rows ``ids`` [m] of W, equal for equal rows: [m].

    The bits of each element, in float64, times a random integer, modulo 2⁶⁴.
    """
    generator = torch.Generator().manual_seed(seed)
    size = (table.shape[1],)
    random = torch.randint(-(2**63), 2**63 - 1, size, generator=generator, device="cpu")
    random = random.to(table.device) | 1
    parts = []
    for _, some in in_chunks(ids, ids.dtype):
        bits = (table[some].double() + 0.0).view(torch.int64)  # -0 becomes 0
        # The lowest 29 bits of shorter dtypes are zero, and would stay so in any product.
        parts.append((bits.bitwise_xor(bits >> 29) * random).sum(1))
    return torch.cat(parts)


def _are_equal(table: Tensor, ids: Tensor, others: Tensor) -> Tensor:
    """Whether the rows ``ids`` [m] of W equal its rows ``others`` [m]: [m]."""
    pairs = zip(in_chunks(ids, ids.dtype), in_chunks(others, ids.dtype), strict=True)
    parts = [(table[some] == table[these]).all(1) for (_, some), (_, these) in pairs]
    return torch.cat(parts) if parts else ids.new_zeros(0, dtype=torch.bool)
