"""How much of a claim's time is spent inside the model's own forward passes, and on what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from harness.subject import Subject

FED = ("input_ids", "inputs_embeds", "decoder_input_ids", "decoder_inputs_embeds")
"""Arguments of a forward pass that have a row for each prompt and a column for each token."""


class ForwardClock:
    """Seconds spent in the forward passes of some models, nested ones counted once.

    ``size`` is that of the latest pass: rows and tokens.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.size: tuple[int, int] | None = None
        self._depth = 0
        self._since = 0.0
        self._hooks: dict[nn.Module, list[Any]] = {}

    @contextmanager
    def watching(self, subject: Subject) -> Iterator[ForwardClock]:
        """Count while the block runs, passes that end in an exception too.

        The float64 reference counts as well, from when the block builds it.
        """
        self.watch(subject.model)
        if (known := subject.known_reference) is not None:
            self.watch(known.model)
        subject.clocks.append(self)
        try:
            yield self
        finally:
            subject.clocks.remove(self)
            self._unwatch()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave no hook in the models while the block runs: it copies one of them."""
        models = self._unwatch()
        try:
            yield
        finally:
            for model in models:
                self.watch(model)

    def watch(self, model: nn.Module) -> None:
        """Count the passes of ``model`` too, until the block is over."""
        enter = model.register_forward_pre_hook(self._enter, with_kwargs=True)
        self._hooks[model] = [enter, model.register_forward_hook(self._leave, always_call=True)]

    def _unwatch(self) -> list[nn.Module]:
        for hooks in self._hooks.values():
            for hook in hooks:
                hook.remove()
        models = list(self._hooks)
        self._hooks.clear()
        return models

    def _enter(self, module: nn.Module, given: tuple, named: dict[str, Any]) -> None:
        self._depth += 1
        if self._depth == 1:
            self._since = time.perf_counter()
            fed = [*given[:1], *(named.get(name) for name in FED)]
            for tensor in fed:
                if torch.is_tensor(tensor) and tensor.ndim >= 2:
                    self.size = (tensor.shape[0], tensor.shape[1])

    def _leave(self, *_: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.seconds += time.perf_counter() - self._since
