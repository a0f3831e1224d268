"""Matrices for tests of decoding: random, of a known condition, or short of a rank."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.tests.support.randoms import normal

ROWS, COLUMNS = 60, 12


def table(seed: int = 0, rows: int = ROWS, columns: int = COLUMNS) -> Tensor:
    return normal(rows, columns, seed=seed)


def of_condition(condition: float, seed: int = 0) -> Tensor:
    """A table whose singular values fall evenly, in decades, from 1 to 1 / condition."""
    u, _, vh = torch.linalg.svd(table(seed), full_matrices=False)
    decades = torch.linspace(0, 1, COLUMNS, dtype=torch.float64)
    return (u * condition**-decades) @ vh


def deficient(seed: int) -> Tensor:
    """A table with a column that is another one, a sum of two, or half of the rank gone."""
    w = table(seed)
    if seed % 3 == 0:
        w[:, -1] = w[:, 0]
    elif seed % 3 == 1:
        w[:, -1] = w[:, 0] + w[:, 1]
    else:
        w = w[:, :6] @ table(seed + 100, 6, COLUMNS)
    return w


def wide(condition: float, offset: float = 0.0, seed: int = 0) -> Tensor:
    """A float32 table [2000, 48] of about this condition; ``offset`` gives columns one sign."""
    scales = torch.logspace(0, 1, 48, base=1 / condition, dtype=torch.float64)
    turned = torch.linalg.qr(table(seed + 1, 48, 48)).Q
    return ((table(seed, 2000, 48) * scales) @ turned + offset).float()
