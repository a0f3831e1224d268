"""Moves a model's tensors in memory, since some libraries round by an operand's address.

A weight that was read from a file may begin at any multiple of its element's size, one that torch
allocates begins at a multiple of 64 bytes, and matrix libraries take other paths for the two.
`odd` misaligns every model that is loaded or copied; `lying_like` aligns one like another.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models.machine import weights

LINE = 64
"""Bytes to which torch aligns its allocations; addresses count modulo this."""

PAGE = 4096
"""Bytes of a page of memory, in which a tensor may begin at any line."""

ODD = (8, 24, 40, 56)
"""The odd multiples of 8 up to `LINE`."""

NAMES = ("odd",)
"""The names of the allocations that a run can emulate."""

Layout = Callable[[str, Tensor], tuple[int, tuple[int, ...]]]
"""Name and tensor → the start address modulo `LINE`, and the strides."""


MOVES: list[Callable[[nn.Module], None]] = []
"""What moves the tensors of every model that is loaded or copied."""


def allocated(model: nn.Module) -> None:
    """Move the tensors of a model that was loaded or copied, where a run emulates that."""
    for move in MOVES:
        move(model)


@contextmanager
def odd() -> Iterator[None]:
    """Within a block, the tensors of loaded or copied models begin at odd multiples of 8 bytes.

    Models that accelerate dispatches stay: it recognises tied weights by their addresses.
    """
    draws = random.Random(0)

    def move_to_odd(model: nn.Module) -> None:
        if not weights.is_dispatched(model):
            move(model, lambda _, tensor: (draws.choice(ODD), tensor.stride()))

    before = MOVES[:]
    MOVES[:] = [move_to_odd]
    try:
        yield
    finally:
        MOVES[:] = before


@contextmanager
def lying_like(model: nn.Module, other: nn.Module, page: int = 0) -> Iterator[None]:
    """Align the tensors of ``model`` in memory like those of ``other`` within a block.

    They have the same addresses modulo `LINE` and the same strides, by name; the seed ``page``
    draws their starts in a `PAGE`.  The block's writes to them are lost.
    """
    others_by_name = dict(_named(other))

    def layout(name: str, tensor: Tensor) -> tuple[int, tuple[int, ...]]:
        like = others_by_name.get(name)
        if like is None or not _is_like(like, tensor):
            like = tensor
        return like.data_ptr() % LINE, like.stride()

    undo = move(model, layout, random.Random(page))
    try:
        yield
    finally:
        undo()


def move(
    model: nn.Module, layout: Layout, draws: random.Random | None = None
) -> Callable[[], None]:
    """Move a model's parameters and buffers to other memory; returns a function that undoes it.

    They stay the same objects.  Tensors that share memory still share it, with unchanged strides.
    ``draws`` chooses at how many lines into a page they begin.
    """
    before: list[tuple[Tensor, Tensor]] = []
    for group in _groups(model):
        first, tensor = group[0]
        begin, strides = layout(first, tensor)
        alike = all(_place(each) == _place(tensor) for _, each in group)
        strides = strides if alike and _is_dense(tensor) else tensor.stride()
        start = tensor.data_ptr()
        size = max(_end(each) for _, each in group) - start
        line = 0 if draws is None else draws.randrange(PAGE // LINE)
        room = torch.zeros(size + PAGE + LINE, dtype=torch.uint8, device=tensor.device)
        shift = line * LINE + (begin - begin % tensor.itemsize - room.data_ptr()) % LINE
        for _, each in group:
            offset = shift + each.data_ptr() - start
            piece = room[offset : offset + _end(each) - each.data_ptr()].view(each.dtype)
            moved = piece.as_strided(each.shape, strides if alike else each.stride())
            moved.copy_(each.detach())
            before.append((each, each.data))
            each.data = moved

    def undo() -> None:
        for tensor, data in before:
            tensor.data = data

    return undo


def _named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers under all their names."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _is_movable(tensor: Tensor) -> bool:
    plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout == torch.strided
    return plain and tensor.device.type != "meta" and tensor.numel() > 0 and tensor.itemsize <= 8


def _is_like(other: Tensor, tensor: Tensor) -> bool:
    """Whether ``tensor`` can be aligned like ``other``."""
    same = (other.shape, other.dtype) == (tensor.shape, tensor.dtype)
    return same and _is_movable(other) and _is_dense(other)


def _groups(model: nn.Module) -> list[list[tuple[str, Tensor]]]:
    """The movable tensors, each once, in groups that overlap in memory, by address."""
    tensors = {id(tensor): (name, tensor) for name, tensor in reversed([*_named(model)])}
    movable = [each for each in tensors.values() if _is_movable(each[1])]
    movable.sort(key=lambda each: (str(each[1].device), each[1].data_ptr()))
    groups: list[list[tuple[str, Tensor]]] = []
    end: tuple[Any, int] = (None, 0)
    for name, tensor in movable:
        if tensor.device == end[0] and tensor.data_ptr() < end[1]:
            groups[-1].append((name, tensor))
            end = tensor.device, max(end[1], _end(tensor))
        else:
            groups.append([(name, tensor)])
            end = tensor.device, _end(tensor)
    return groups


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _end(tensor: Tensor) -> int:
    """The address after a tensor's last element."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.itemsize


def _is_dense(tensor: Tensor) -> bool:
    """Whether a tensor's elements fill its memory, so that other strides fit in it."""
    return _end(tensor) - tensor.data_ptr() == tensor.numel() * tensor.itemsize
