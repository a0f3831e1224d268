"""Samples packed into one row: how a pass is given the place where each begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from assay.harness.models.subject import positions, roles
from assay.harness.models.subject.roles import Role

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

SEPARATE = "keep packed sequences apart"
"""A part of the library's error where a layer cannot keep samples apart by their lengths."""


def counted(subject: Subject, sizes: Sequence[int]) -> Tensor:
    """Positions that restart with each of the samples, which have ``sizes`` tokens: [n]."""
    return torch.cat([positions.usual(subject, size) for size in sizes])


def lengths(sizes: Sequence[int], device: torch.device) -> dict[str, Any]:
    """The arguments by which the library's collator says how long each sample of one row is.

    Flash attention and the kernels of recurrent layers read them; see ``return_flash_attn_kwargs``
    and ``return_seq_idx`` of `transformers.DataCollatorWithFlattening`.
    """
    ends = torch.tensor(sizes, device=device).cumsum(0)
    edges = torch.nn.functional.pad(ends, (1, 0)).to(torch.int32)
    number = torch.arange(len(sizes), device=device)
    index = number.repeat_interleave(torch.tensor(sizes, device=device)).to(torch.int32)
    queries, keys = roles.SPELLINGS[Role.SAMPLE_EDGES]
    return {
        queries: edges,
        keys: edges,
        "max_length_q": max(sizes),
        "max_length_k": max(sizes),
        roles.SPELLINGS[Role.SAMPLE_INDICES][0]: index[None],
    }


def packed(subject: Subject, sizes: Sequence[int]) -> dict[str, Any]:
    """The options of a pass over samples of ``sizes`` tokens: lengths, and positions if taken."""
    options = lengths(sizes, subject.device)
    if subject.takes(Role.POSITIONS):
        options["positions"] = counted(subject, sizes)
    return options


@contextmanager
def reaching(model: nn.Module) -> Iterator[list[str]]:
    """The names of layers with a convolution that are given the lengths of samples, in a block."""
    names: list[str] = []
    hooks = []
    for name, module in model.named_modules():
        if any(isinstance(child, nn.Conv1d) for child in module.children()):
            hooks.append(module.register_forward_pre_hook(_Noting(name, names), with_kwargs=True))
    try:
        yield names
    finally:
        for hook in hooks:
            hook.remove()


class _Noting:
    """A hook that notes a module's name if the module is given the lengths of samples."""

    def __init__(self, name: str, names: list[str]) -> None:
        self.name, self.names = name, names

    def __call__(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        if any(roles.name_in(named, role) for role in (Role.SAMPLE_INDICES, Role.SAMPLE_EDGES)):
            self.names.append(self.name)
