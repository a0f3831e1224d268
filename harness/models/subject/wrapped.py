"""A plain module or a function, as a model of transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from assay.harness.models.subject.compat import WRAPPED, PreTrainedConfig
from assay.harness.models.subject.roles import ids_argument
from assay.harness.results.errors import Missing

PARTS = ("_orig_mod", "module")
"""Attributes by which torch.compile and torch's data parallelism hold the model's own module."""


class WrappedConfig(PreTrainedConfig):
    """What a pass of the wrapped module shows: sizes, and the name of its class or function."""

    model_type = WRAPPED


class Wrapped(PreTrainedModel):
    """A module or a function from ids [batch, n] to logits [batch, n, V], in evaluation mode.

    ``inner`` is called with the arguments that it names.  Modules that a function holds in its
    closure, its arguments or its globals are this model's, so that copies have their own.
    """

    config_class = WrappedConfig

    def __init__(self, config: PreTrainedConfig, inner: Callable[..., Any]) -> None:
        super().__init__(config)
        self.inner = inner
        self.held = nn.ModuleList(() if isinstance(inner, nn.Module) else modules_of(inner))
        self.logits_dtype = torch.get_default_dtype()
        self.logits_device = torch.device("cpu")
        self.stack: nn.Module | None = None
        """The list of the blocks, or None."""
        self.embedding: nn.Module | None = None
        """The module that embeds the ids, or None."""
        self.head: nn.Module | None = None
        """The last linear map, which returns the logits, or None."""

    @property
    def called(self) -> Callable[..., Any]:
        """The function whose parameters count."""
        inner: Any = self.inner
        for name in PARTS:
            if isinstance(inner, nn.Module) and isinstance(getattr(inner, name, None), nn.Module):
                inner = getattr(inner, name)
        return inner.forward if isinstance(inner, nn.Module) else inner

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights; of the logits where there are none."""
        every = (each.dtype for each in self.parameters() if each.is_floating_point())
        return next(every, self.logits_dtype)

    @property
    def device(self) -> torch.device:
        """The device of the weights; of the logits where there are none."""
        return next((each.device for each in self.parameters()), self.logits_device)

    def forward(self, input_ids: Tensor, **arguments: Any) -> Any:
        """Call the module or function with the ids by its own name for them."""
        name = ids_argument(self.called)
        if name is None:
            return self.inner(input_ids, **arguments)
        return self.inner(**{name: input_ids}, **arguments)

    def get_input_embeddings(self) -> Any:
        """The module that embeds the ids, or None."""
        return self.embedding

    def get_output_embeddings(self) -> Any:
        """The linear map that returns the logits, or None."""
        return self.head

    def set_attn_implementation(self, *_: object) -> None:
        """Raise `Missing`: a wrapped module attends as it does."""
        raise Missing("a plain module or function has no attention to choose")

    def save_pretrained(self, *_: object, **__: object) -> None:
        """Raise `Missing`: only models of transformers can be saved and loaded."""
        raise Missing("a plain module or function has no save_pretrained")


def modules_of(function: Any) -> list[nn.Module]:
    """The modules that a function or another object that can be called refers to."""
    modules: dict[int, nn.Module] = {}
    looked_at: set[int] = set()
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if id(each) in looked_at:
            continue
        looked_at.add(id(each))
        if isinstance(each, nn.Module):
            modules[id(each)] = each
        else:
            waiting += _parts(each)
    return list(modules.values())


def _parts(value: Any) -> Iterator[Any]:
    """What ``value`` refers to, as far as a model may be in it."""
    if isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # the cell is empty
                yield cell.cell_contents
        yield from value.__defaults__ or ()
        yield from (value.__kwdefaults__ or {}).values()
        for name in value.__code__.co_names:
            named = value.__globals__.get(name)
            if isinstance(named, nn.Module | MethodType | partial):
                yield named
    elif callable(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
        yield from vars(value).values()
