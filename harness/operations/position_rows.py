"""The rows of a model's position embedding: those that prompts use, and others in their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

from assay.harness.models.subject import Subject, positions


@contextmanager
def rows_replaced(subject: Subject, rows: Tensor) -> Iterator[None]:
    """Replace the first n used rows of the position embedding by ``rows`` [n, d] within a block.

    Raises ValueError without a position embedding, or for more rows than it has.
    """
    table = positions.position_table(subject)
    if table is None:
        raise ValueError(f"{subject.name} has no position embeddings")
    start, n = positions.position_offset(subject), len(rows)
    if start + n > len(table.weight):
        raise ValueError(f"{subject.name} has {len(table.weight) - start} positions, not {n}")
    original = table.weight.detach().clone()
    with torch.no_grad():
        table.weight[start : start + n] = rows.to(original)
    try:
        yield
    finally:
        with torch.no_grad():
            table.weight.copy_(original)


def rows_used(subject: Subject) -> Tensor:
    """The rows of the position embedding that prompts use: [context, d], a copy."""
    table = positions.position_table(subject)
    if table is None:
        raise ValueError(f"{subject.name} has no position embeddings")
    return table.weight.detach()[positions.position_offset(subject) :].clone()


def rows_moved(subject: Subject, order: Tensor) -> AbstractContextManager[None]:
    """Move row ``order[j]`` of the position embedding to row j within a block.

    ``order`` [n] permutes the first n used rows.
    """
    return rows_replaced(subject, rows_used(subject)[order])
