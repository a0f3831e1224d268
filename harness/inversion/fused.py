"""Computes GPT-2's activation in one operation instead of eight, and its gradient in one.

`transformers.activations.NewGELUActivation` writes out 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))),
for which torch has an operation (`torch.nn.functional.gelu`, ``approximate="tanh"``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.harness.models.subject import Subject

WRITTEN_IN = "transformers.activations"
"""The module of activations that are compared with torch's operation."""

DTYPES = (torch.float32, torch.float64)
"""Dtypes in which eight roundings in place of one make no difference that matters."""

REACH, POINTS = 12.0, 4097
"""Activations are compared up to so large a number, at so many points."""

ROUNDINGS = 8
"""Roundings, relative to the larger of 1 and the number, by which both may differ."""


def fused(x: Tensor) -> Tensor:
    """GELU in the form with tanh, in one operation."""
    return F.gelu(x, approximate="tanh")


def is_gelu(module: nn.Module, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether ``module`` is one of transformers' activations and computes `fused`."""
    if type(module).__module__ != WRITTEN_IN or [*module.children(), *module.parameters()]:
        return False
    x = torch.linspace(-REACH, REACH, POINTS, device=device).to(dtype)
    with torch.no_grad():
        off = (module(x) - fused(x)).abs()
    room = ROUNDINGS * torch.finfo(dtype).eps * x.abs().clamp_min(1)
    return bool((off <= room).all())


@contextmanager
def fused_activations(subject: Subject, blocks: int) -> Iterator[None]:
    """Compute the activations of the first ``blocks`` by `fused` within the block, where equal.

    A model with an injected fault computes its own.
    """
    replaced: list[nn.Module] = []
    if subject.injected is None and subject.dtype in DTYPES:
        replaced = _gelus(subject, blocks)
    for module in replaced:
        # An attribute of the instance hides the method of its class until it is deleted.
        module.forward = fused
    try:
        yield
    finally:
        for module in replaced:
            del module.forward


def _gelus(subject: Subject, blocks: int) -> list[nn.Module]:
    """The modules in the first ``blocks`` that write GELU out, by their class's own method."""
    try:
        some = list(subject.blocks)[:blocks]
    except LookupError:
        return []
    distinct = {id(module): module for block in some for module in block.modules()}
    return [
        module
        for module in distinct.values()
        if "forward" not in vars(module) and is_gelu(module, subject.dtype, subject.device)
    ]
