"""Replaces attention by its mean over tokens, to measure what a model does without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from assay.harness.models.capabilities import Missing
from assay.harness.models.subject import Subject


@contextmanager
def average_attention(subject: Subject) -> Iterator[None]:
    """For the length of a block, attention gives every token the mean of its usual outputs.

    The mean is a constant: no gradient passes it.  Raises `Missing` where the blocks have no
    module that is known as attention.
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
    """The modules whose class is named an attention and that hold no other such.

    Some of those that do hold the residual stream and the norm as well.
    """
    for each in module.modules():
        named = [m for m in each.modules() if "attention" in type(m).__name__.lower()]
        if named == [each]:
            yield each


def _mean(module: nn.Module, given: tuple[Any, ...], output: Any) -> Any:
    state = output[0] if isinstance(output, tuple) else output
    mean = state.detach().mean(1, keepdim=True).expand_as(state)
    return (mean, *output[1:]) if isinstance(output, tuple) else mean
