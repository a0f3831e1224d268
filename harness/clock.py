"""How much of a law's time is spent inside the model's own forward passes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


class ForwardClock:
    """Seconds spent in the forward passes of some models, nested ones counted once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._since = 0.0

    @contextmanager
    def watching(self, *models: nn.Module) -> Iterator[ForwardClock]:
        """Count while the block runs, passes that end in an exception too."""
        hooks = []
        for model in models:
            hooks.append(model.register_forward_pre_hook(self._enter))
            hooks.append(model.register_forward_hook(self._leave, always_call=True))
        try:
            yield self
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, *_: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._since = time.perf_counter()

    def _leave(self, *_: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.seconds += time.perf_counter() - self._since
