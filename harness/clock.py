"""How long a claim has taken, how much of that inside the model, and the brake on both.

How many examples or draws a claim takes is fixed by profile and seed, never by a clock.  The brake
is for a model that is too slow for a profile: it ends the claim without a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from torch import nn

TOO_SLOW = "too slow for this profile"
"""What is said of a machine or model on which the brake strikes."""


class Braked(BaseException):
    """A claim has taken as long as it may; leaves Hypothesis as an interrupt would."""


class ForwardClock:
    """Seconds spent in the forward passes of some models, nested ones counted once.

    With a ``brake`` in seconds, a claim that has run so long is ended by `Braked` before or after
    the next pass, and so is one whose passes are all slower than ``share`` seconds: however many
    follow, its examples or draws do not fit.  The first pass alone tells nothing of the others,
    as it pays for what is done once.
    """

    def __init__(self, brake: float = math.inf, share: float = math.inf) -> None:
        self.seconds = 0.0
        self.brake, self.share = brake, share
        self._started = perf_counter()
        self._passes, self._fastest = 0, math.inf
        self._watching = False
        self._depth = 0
        self._since = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return perf_counter() - self._started

    def check(self) -> None:
        """Raise `Braked` where the claim has taken too long."""
        slow = self._fastest > self.share and self._passes > 0
        if slow and (self._passes > 1 or self.elapsed > self.brake):
            raise Braked(f"one pass takes {self._fastest:.3g} s")
        if self.elapsed > self.brake:
            raise Braked(f"stopped after {self.elapsed:.3g} s")

    @contextmanager
    def watching(self, *models: nn.Module) -> Iterator[ForwardClock]:
        """Count while the block runs, passes that end in an exception too."""
        hooks = []
        self._watching = True
        for model in models:
            hooks.append(model.register_forward_pre_hook(self._enter))
            hooks.append(model.register_forward_hook(self._leave, always_call=True))
        try:
            yield self
        finally:
            self._watching = False
            for hook in hooks:
                hook.remove()

    def __deepcopy__(self, memo: dict) -> ForwardClock:
        """Copies of a model that are made meanwhile are watched, too."""
        return self

    def _enter(self, *_: Any) -> None:
        if not self._watching:
            return
        if self._depth == 0:
            self.check()
            self._since = perf_counter()
        self._depth += 1

    def _leave(self, *_: Any) -> None:
        if not self._watching:
            return
        self._depth -= 1
        if self._depth == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            took = perf_counter() - self._since
            self.seconds += took
            self._passes, self._fastest = self._passes + 1, min(self._fastest, took)
            self.check()
