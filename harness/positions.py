"""Where a model keeps its absolute positions: found by watching, not by names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from harness.subject import Subject

PROBE = 4
"""Tokens in the prompt that is watched."""


@cache
def _lookup(subject: Subject) -> tuple[nn.Embedding, int] | None:
    """The table of positions and the row that a prompt's first token is given, or None.

    It is the embedding module, other than the tokens', that is looked up with numbers that climb
    by one along the prompt.
    """
    n = min(PROBE, getattr(subject.config, "max_position_embeddings", PROBE) or PROBE)
    ids = subject.content(torch.arange(n, device=subject.device)[None] * 7)
    seen: list[tuple[nn.Embedding, int]] = []

    def watch(module: nn.Module, given: tuple, _: Tensor) -> None:
        numbers = given[0].flatten()[-n:]
        if n > 1 and numbers.is_floating_point() is False and bool((numbers.diff() == 1).all()):
            seen.append((module, int(numbers[0])))  # type: ignore[arg-type]

    words = subject.model.get_input_embeddings()
    tables = [m for m in subject.model.modules() if isinstance(m, nn.Embedding) and m is not words]
    hooks = [table.register_forward_hook(watch) for table in tables]
    try:
        subject(ids, states=False)
    finally:
        for hook in hooks:
            hook.remove()
    return seen[0] if seen else None


def position_table(subject: Subject) -> nn.Embedding | None:
    """The learned table of absolute positions [rows, hidden], or None."""
    found = _lookup(subject)
    return None if found is None else found[0]


def position_offset(subject: Subject) -> int:
    """The row of the table that a prompt's first token is given; 0 without a table."""
    found = _lookup(subject)
    return 0 if found is None else found[1]


@cache
def first_position(subject: Subject) -> int:
    """The ``position_ids`` of a prompt's first token: 0, or past the padding's rows.

    Some models add the table's offset to the ids that they are given, others expect it in them.
    """
    table, offset = position_table(subject), position_offset(subject)
    if table is None or offset == 0 or not subject.accepts("position_ids"):
        return 0
    taken: list[int] = []
    hook = table.register_forward_hook(lambda _, given, __: taken.append(int(given[0].min())))
    ids = subject.content(torch.zeros((1, 1), dtype=torch.long, device=subject.device))
    try:
        subject(ids, positions=torch.full((1,), offset, device=subject.device), states=False)
    finally:
        hook.remove()
    return offset if taken == [offset] else 0


def usual(subject: Subject, n: int) -> Tensor:
    """The ``position_ids`` that a prompt of ``n`` tokens has when none are given: [n]."""
    return torch.arange(n, device=subject.device) + first_position(subject)


@contextmanager
def rows_moved(subject: Subject, order: Tensor) -> Iterator[None]:
    """For the length of a block, row ``order[j]`` of the position table stands at row j.

    ``order`` [n] permutes the first n rows that are used; the table is put back afterwards.
    """
    table = position_table(subject)
    if table is None:
        raise ValueError(f"{subject.name} has no table of positions")
    start, n = position_offset(subject), len(order)
    kept = table.weight.detach().clone()
    with torch.no_grad():
        table.weight[start : start + n] = kept[start : start + n][order]
    try:
        yield
    finally:
        with torch.no_grad():
            table.weight.copy_(kept)
