"""Finds a model's absolute position embeddings, by watching a pass and not by names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from assay.harness.models.core import Core
from assay.harness.models.memo import memo

PROBE = 4
"""Tokens in the prompt that is watched."""


class LookUps(TorchDispatchMode):
    """Notes every table that rows are looked up in, and which rows.

    A module's own arguments would not do: some count positions from the mask that they are given.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[int, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.embedding.default:
            self.seen.append((args[0].data_ptr(), args[1]))
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class _Found:
    """A table of positions, the row that a prompt's first token is given, and how many rows past
    the last token's are looked up as well.
    """

    table: Any
    first: int
    beyond: int


@memo
def _lookup(subject: Core) -> _Found | None:
    """The table of positions and what is looked up in it, or None.

    It is the module, other than the tokens', in whose weight rows are looked up that climb by one
    along the prompt.
    """
    most = getattr(subject.config, "max_position_embeddings", None) or PROBE
    n = min(PROBE, most) if most > 0 else PROBE  # -1 stands for no limit in some
    n = max(n, subject.shortest)
    ids = subject.content(torch.arange(n, device=subject.device)[None] * 7)
    words = subject.input_embeddings
    # A table as wide as a head holds angles to turn queries and keys by.
    widths = {subject.hidden, getattr(subject.config, "hidden_size", subject.hidden)}
    modules: list[Any] = [module for module in subject.model.modules() if _is_table(module)]
    tables = {
        module.weight.data_ptr(): module
        for module in modules
        if module is not words and module.weight.shape[1] in widths
    }
    subject(ids, states=False)  # an encoder reads its prompt once: what it looks up is not ours
    with LookUps() as look_ups:
        subject(ids, states=False)
    for place, numbers in look_ups.seen:
        for rows in _of_prompt(numbers, n):
            if place in tables and n > 1 and bool((rows.diff() == 1).all()):
                highest = max(int(each.max()) for seen, each in look_ups.seen if seen == place)
                return _Found(tables[place], int(rows[0]), highest - int(rows[-1]))
    return None


def _is_table(module: Any) -> bool:
    """Whether rows could be looked up in it: not every model's tables are ``nn.Embedding``."""
    weight = getattr(module, "weight", None)
    return torch.is_tensor(weight) and weight.ndim == 2 and not isinstance(module, nn.Linear)


def _of_prompt(numbers: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The last and the first ``n`` of the rows looked up: one of them is the prompt's.

    Some models put rows of their own before a prompt, some fill it up behind.
    """
    flat = numbers.flatten()
    return flat[-n:], flat[:n]


def position_table(subject: Core) -> Any:
    """The module whose ``weight`` [rows, hidden] is the learned table of positions, or None."""
    found = _lookup(subject)
    return None if found is None else found.table


def position_offset(subject: Core) -> int:
    """The row of the table that a prompt's first token is given; 0 without a table."""
    found = _lookup(subject)
    return 0 if found is None else found.first


def positions_beyond(subject: Core) -> int:
    """Rows of the table that are looked up past a prompt's last token; 0 without a table.

    A model that predicts several tokens at once reads the rows of those to come.
    """
    found = _lookup(subject)
    return 0 if found is None else found.beyond


@memo
def first_position(subject: Core) -> int:
    """The ``position_ids`` of a prompt's first token: 0, or past the padding's rows.

    Some models add the table's offset to the ids that they are given, others expect it in them.
    """
    table, offset = position_table(subject), position_offset(subject)
    if table is None or offset == 0 or subject.positions_argument is None:
        return 0
    ids = subject.content(torch.zeros((1, 1), dtype=torch.long, device=subject.device))
    with LookUps() as look_ups:
        subject(ids, positions=torch.full((1,), offset, device=subject.device), states=False)
    place = table.weight.data_ptr()
    taken = [_of_prompt(numbers, 1) for seen, numbers in look_ups.seen if seen == place]
    return offset if len(taken) == 1 and offset in map(int, taken[0]) else 0


@memo
def follow_padding(subject: Core) -> bool:
    """Whether a learned table's rows are counted from the first token that is no padding.

    True without a table.  Found by watching which rows are looked up, not by what comes of them.
    """
    table, offset = position_table(subject), position_offset(subject)
    if table is None:
        return True
    ids = subject.content(torch.arange(PROBE, device=subject.device)[None] * 7)
    mask = torch.ones_like(ids)
    mask[:, 0] = 0
    with LookUps() as look_ups:
        subject(ids, mask=mask, states=False)
    place = table.weight.data_ptr()
    taken = [_of_prompt(numbers, PROBE) for seen, numbers in look_ups.seen if seen == place]
    return any(int(rows[1]) == offset for pair in taken for rows in pair if len(rows) > 1)


@memo
def counted_besides(subject: Core) -> bool:
    """Whether rows of some table are looked up by place though all positions are given as one.

    Found by watching equal tokens: a bias by distance counts columns, whatever is given.
    """
    n = max(PROBE, subject.shortest)
    ids = subject.content(torch.full((1, n), 7, device=subject.device))
    together = torch.full((n,), first_position(subject), device=subject.device)
    with LookUps() as look_ups:
        subject(ids, positions=together, states=False)
    return any(
        numbers.numel() and bool((numbers != numbers.flatten()[0]).any())
        for _, numbers in look_ups.seen
    )


def usual(subject: Core, n: int) -> Tensor:
    """The ``position_ids`` that a prompt of ``n`` tokens has when none are given: [n]."""
    return torch.arange(n, device=subject.device) + first_position(subject)


@contextmanager
def rows_replaced(subject: Core, rows: Tensor) -> Iterator[None]:
    """For the length of a block, the first n rows that are used are ``rows`` [n, d].

    Raises ValueError without a table, or for more rows than it has.
    """
    table = position_table(subject)
    if table is None:
        raise ValueError(f"{subject.name} has no position embeddings")
    start, n = position_offset(subject), len(rows)
    if start + n > len(table.weight):
        raise ValueError(f"{subject.name} has {len(table.weight) - start} positions, not {n}")
    kept = table.weight.detach().clone()
    with torch.no_grad():
        table.weight[start : start + n] = rows.to(kept)
    try:
        yield
    finally:
        with torch.no_grad():
            table.weight.copy_(kept)


def rows_used(subject: Core) -> Tensor:
    """The rows of the position table that prompts are given: [context, d], a copy."""
    table = position_table(subject)
    if table is None:
        raise ValueError(f"{subject.name} has no position embeddings")
    return table.weight.detach()[position_offset(subject) :].clone()


def rows_moved(subject: Core, order: Tensor) -> AbstractContextManager[None]:
    """For the length of a block, row ``order[j]`` of the position table stands at row j.

    ``order`` [n] permutes the first n rows that are used; the table is put back afterwards.
    """
    return rows_replaced(subject, rows_used(subject)[order])
