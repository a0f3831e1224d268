"""Finds a model's absolute position embeddings by watching a pass, not by names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from assay.harness.models.machine.dispatching import Dispatching
from assay.harness.models.subject.memo import memo

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

WATCHED = 4
"""Tokens in the watched prompt."""


def address(table: Tensor) -> int:
    """The address of a matrix's numbers, of a divided one's those that this process has."""
    return _own_part(table).data_ptr()


def _own_part(tensor: Tensor) -> Tensor:
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


class LookUps(Dispatching):
    """Records every embedding look-up: the matrix's `address` and the rows.

    ``selected`` adds rows that are chosen in another way, as those of constants and of experts.
    A module's own arguments would not do: some modules count positions from their mask.
    """

    def __init__(self, selected: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.selected = selected
        self.lookups: list[tuple[int, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.embedding.default:
            self.lookups.append((address(args[0]), _own_part(args[1])))
        if self.selected and func is torch.ops.aten.index_select.default and args[1] == 0:
            self.lookups.append((address(args[0]), _own_part(args[2])))
        if self.selected and func is torch.ops.aten.index.Tensor and args[1][0] is not None:
            self.lookups.append((address(args[0]), _own_part(args[1][0])))
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class _Table:
    """A position embedding: its module, its `address`, the row of a prompt's first token, and how
    many rows beyond the last token's are also looked up.

    The module is None where the rows are constants.
    """

    module: Any
    place: int
    first: int
    beyond: int


@memo
def _lookup(subject: Subject) -> _Table | None:
    """The position embedding and the rows that a pass looks up in it, or None.

    It is the module, other than the tokens', whose looked-up rows increase by one along the
    prompt.
    """
    most = getattr(subject.config, "max_position_embeddings", None) or WATCHED
    n = min(WATCHED, most) if most > 0 else WATCHED  # -1 stands for no limit in some
    n = max(n, subject.shortest)
    ids = subject.content(torch.arange(n, device=subject.device)[None] * 7)
    words = subject.input_embeddings
    # A matrix as wide as a head contains rotation angles for queries and keys.
    widths = {subject.hidden, getattr(subject.config, "hidden_size", subject.hidden)}
    modules: list[Any] = [module for module in subject.model.modules() if _is_table(module)]
    tables = {
        address(module.weight): module
        for module in modules
        if module is not words and module.weight.shape[1] in widths
    }
    tables |= dict.fromkeys(map(address, _constants(subject.model)))
    subject(ids, states=False)  # an encoder reads its prompt once, now: its look-ups do not count
    with LookUps(selected=True) as look_ups:
        subject(ids, states=False)
    for place, numbers in look_ups.lookups:
        for rows in rows_of_prompt(numbers, n):
            if place in tables and len(rows) == n > 1 and bool((rows.diff() == 1).all()):
                highest = max(int(each.max()) for at, each in look_ups.lookups if at == place)
                return _Table(tables[place], place, int(rows[0]), highest - int(rows[-1]))
    return None


def _is_table(module: Any) -> bool:
    """Whether rows could be looked up in it: not every embedding is an ``nn.Embedding``."""
    weight = getattr(module, "weight", None)
    return torch.is_tensor(weight) and weight.ndim == 2 and not isinstance(module, nn.Linear)


def _constants(model: nn.Module) -> Iterator[Tensor]:
    """The matrices of sinusoidal positions, by the name that they have in transformers."""
    named = (getattr(module, "weights", None) for module in model.modules())
    return (each for each in named if torch.is_tensor(each) and each.ndim == 2)


def rows_of_prompt(numbers: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The last and the first ``n`` of the rows looked up: one of them is the prompt's.

    Some models add rows of their own before a prompt, some after it.
    """
    flat = numbers.flatten()
    return flat[-n:], flat[:n]


def position_table(subject: Subject) -> Any:
    """The module whose ``weight`` [rows, hidden] embeds learned positions, or None."""
    table = _lookup(subject)
    return None if table is None else table.module


def position_offset(subject: Subject) -> int:
    """The row of a prompt's first token in the position embedding; 0 without one."""
    table = _lookup(subject)
    return 0 if table is None or table.module is None else table.first


def positions_beyond(subject: Subject) -> int:
    """Rows of the position embedding looked up past a prompt's last token; 0 without one.

    A model that predicts several tokens at once reads the rows of those to come.
    """
    table = _lookup(subject)
    return 0 if table is None or table.module is None else table.beyond


@memo
def first_position(subject: Subject) -> int:
    """The ``position_ids`` of a prompt's first token: 0, or past the padding's rows.

    Some models add the offset of their rows to the ids, others expect it in them.
    """
    table = _lookup(subject)
    if table is None or table.first == 0 or subject.positions_argument is None:
        return 0
    offset = table.first
    ids = subject.content(torch.zeros((1, 1), dtype=torch.long, device=subject.device))
    with LookUps(selected=True) as look_ups:
        subject(ids, positions=torch.full((1,), offset, device=subject.device), states=False)
    pairs = [rows_of_prompt(numbers, 1) for at, numbers in look_ups.lookups if at == table.place]
    return offset if len(pairs) == 1 and offset in map(int, pairs[0]) else 0


def usual(subject: Subject, n: int) -> Tensor:
    """The default ``position_ids`` of a prompt of ``n`` tokens: [n]."""
    return torch.arange(n, device=subject.device) + first_position(subject)
