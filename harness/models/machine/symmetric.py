"""Eigenvalues of symmetric matrices on any device.

A GPU's solver (cuSOLVER) gives up on some matrices that a processor's (LAPACK) solves.
"""

from __future__ import annotations

import torch
from torch import Tensor

FAILED: type[RuntimeError] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


def eigenvalues(square: Tensor) -> Tensor:
    """The eigenvalues of a symmetric matrix [d, d], the smallest first: [d]."""
    try:
        return torch.linalg.eigvalsh(square)
    except FAILED:
        return torch.linalg.eigvalsh(square.cpu()).to(square)


def decomposition(square: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues of a symmetric matrix [d, d], the smallest first, and the vectors [d, d].

    A column of the second is the vector of a value.
    """
    try:
        values, vectors = torch.linalg.eigh(square)
    except FAILED:
        values, vectors = torch.linalg.eigh(square.cpu())
    return values.to(square), vectors.to(square)
