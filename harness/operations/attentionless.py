"""Replaces attention by its mean over tokens, to measure the model without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from assay.harness.models.capabilities import Missing
from assay.harness.models.subject import Subject


@contextmanager
def average_attention(subject: Subject) -> Iterator[None]:
    """Replace attention's output by its mean over tokens, within a block.

    The mean is a constant: no gradient passes it.  Raises `Missing` where the blocks have no
    module that is recognised as attention.
    """
    modules = list(_attentions(subject.blocks))
    if not modules:
        raise Missing("the blocks have no module that Assay recognises as attention")
    hooks = [module.register_forward_hook(_mean) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _attentions(module: nn.Module) -> Iterator[nn.Module]:
    """The innermost modules whose class name contains "attention".

    Some outer ones also contain the residual stream and the norm.
    """
    for each in module.modules():
        named = [m for m in each.modules() if "attention" in type(m).__name__.lower()]
        if named == [each]:
            yield each


def _mean(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    state = output[0] if isinstance(output, tuple) else output
    mean = state.detach().mean(1, keepdim=True).expand_as(state)
    return (mean, *output[1:]) if isinstance(output, tuple) else mean
