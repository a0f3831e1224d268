"""Measures a claim's time, the part spent in the model, and applies the emergency brake.

How many examples or draws a claim takes is fixed by profile and seed, never by a clock.  The brake
is for a model that is too slow for a profile: it ends the claim without a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from torch import nn

from assay.harness.models.alarm import striking
from assay.harness.models.core import Core

FED = ("input_ids", "inputs_embeds", "decoder_input_ids", "decoder_inputs_embeds")
"""Arguments of a forward pass that have a row for each prompt and a column for each token."""

CALL = nn.Module._call_impl.__code__
"""What every pass goes through."""

TOO_SLOW = "too slow for this profile"
"""What is said of a machine or model on which the brake strikes."""


MARGIN = 1.1
"""Times the brake after which a pass is ended that does not return; one that does, ends itself."""

PATIENCE = 5
"""Times the brake that may go by without any pass, as probes and what is no model's take it."""


class Braked(BaseException):
    """A claim has taken as long as it may; leaves Hypothesis as an interrupt would."""


class ForwardClock:
    """Seconds spent in the forward passes of some models, nested ones counted once.

    ``size`` is that of the latest pass: rows and tokens.

    With a ``brake`` in seconds, a claim that has run so long is ended by `Braked` before or after
    the next pass, and so is one whose passes are all slower than ``share`` seconds: however many
    follow, its examples or draws do not fit.  The first pass alone tells nothing of the others,
    as it pays for what is done once.  A pass that does not come to its end is ended where it is,
    `striking`.
    """

    def __init__(self, brake: float = math.inf, share: float = math.inf) -> None:
        self.seconds = 0.0
        self.brake, self.share = brake, share
        self._started = self._alive = perf_counter()
        self._passes, self._fastest = 0, math.inf
        self.size: tuple[int, int] | None = None
        self._watching = False
        self._depth = 0
        self._since = 0.0
        self._hooks: dict[nn.Module, list[Any]] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return perf_counter() - self._started

    def check(self) -> None:
        """Raise `Braked` where the claim has taken too long."""
        self._alive = perf_counter()
        slow = self._fastest > self.share and self._passes > 0
        if slow and (self._passes > 1 or self.elapsed > self.brake):
            raise Braked(f"one pass takes {self._fastest:.3g} s")
        if self.elapsed > self.brake:
            raise Braked(f"stopped after {self.elapsed:.3g} s")

    @contextmanager
    def striking(self, foreign: bool = True) -> Iterator[None]:
        """Raise `Braked` in the block, wherever it is, once it is too late for what it does.

        That is inside a pass when the brake is over, as the pass would end so, if it ended.
        Elsewhere, as in code of a model's that is no pass, it is long after the last sign of life.
        Nothing is done for a block in which no code is ``foreign``.
        """
        first = self.brake * MARGIN if foreign else math.inf
        with striking(first, self.brake * (MARGIN - 1), self._strike):
            yield

    def _strike(self, frame: FrameType | None) -> None:
        passing = self._passing(frame)
        silent = perf_counter() - self._alive > self.brake * PATIENCE
        if silent or (passing and self.elapsed > self.brake * MARGIN):
            self._alive = perf_counter()  # what comes now has time to clear up
            where = " in a pass that did not end" if passing else ""
            raise Braked(f"stopped after {self.elapsed:.3g} s{where}")

    def _passing(self, frame: FrameType | None) -> bool:
        """Whether a pass of a model that is watched is being run in ``frame``."""
        while frame is not None:
            if frame.f_code is CALL and frame.f_locals.get("self") in self._hooks:
                return True
            frame = frame.f_back
        return False

    @contextmanager
    def watching(self, subject: Core) -> Iterator[ForwardClock]:
        """Count while the block runs, passes that end in an exception too.

        The float64 reference counts as well, from when the block builds it.
        """
        self._watching = True
        self.watch(subject.model)
        if (known := subject.known_reference) is not None:
            self.watch(known.model)
        subject.clocks.append(self)
        try:
            yield self
        finally:
            self._watching = False
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

    def __deepcopy__(self, memo: dict[int, Any]) -> ForwardClock:
        """Copies of a model that are made meanwhile are watched, too."""
        return self

    def _enter(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not self._watching:
            return
        if self._depth == 0:
            self.check()
            self._since = perf_counter()
            fed = [*given[:1], *(named.get(name) for name in FED)]
            for tensor in fed:
                if torch.is_tensor(tensor) and tensor.ndim >= 2:
                    self.size = (tensor.shape[0], tensor.shape[1])
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
