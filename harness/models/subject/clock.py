"""Measures a claim's time, the part spent in the model, and applies the emergency brake.

The profile and the seed fix how many examples or draws a claim takes, never a clock.  The brake is
for a model that is too slow for a profile: it ends the claim without a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from assay.harness.models.machine import accelerators, hanging, weights
from assay.harness.models.subject import roles

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

ELSEWHERE = "seconds in passes of models of another size"
"""The name of that detail of a result; a part of its "seconds in forward passes"."""

TOO_SLOW = "too slow for this profile"
"""The message's words for a machine or model on which the brake strikes."""


LEAST = 16
"""Tokens of a pass that takes hardly longer than one of a single token: it reads all weights."""

_CLOCKS: list[ForwardClock] = []
"""The clocks that watch now in this process, the claim's own first."""


class Braked(BaseException):
    """A claim has used up its time; leaves Hypothesis as an interrupt would."""


class ForwardClock:
    """Seconds spent in the forward passes of some models, nested ones counted once.

    ``size`` is that of the latest pass: rows and tokens; ``work`` counts passes and tokens of the
    model (``own``) and of its float64 reference.  ``spent`` are all tokens by what they take: a
    pass counts as one of `LEAST` tokens at least, and three times where gradients are taken of it.

    With a ``brake`` in seconds, `Braked` ends a claim that has run that long, before or after the
    next pass, and one whose passes are all slower than ``share`` seconds: its examples or draws
    cannot fit.  The first pass alone is no evidence, as it includes one-time work.  With ``each``
    the brake is for each pass, not for all.

    A pass is timed from a device at rest to a device at rest.  One that is recorded as a graph is
    counted, and neither waited for nor timed.

    Steps of descents, which do not call the model (`stepping`), are passes as well.
    ``elsewhere`` are the seconds of ``seconds`` in those on models of another size.
    """

    def __init__(
        self, brake: float = math.inf, share: float = math.inf, each: bool = False
    ) -> None:
        self.seconds = self.elsewhere = 0.0
        self.brake, self.share, self.each = brake, share, each
        self._started = perf_counter()
        self._passes, self._fastest = 0, math.inf
        self.size: tuple[int, int] | None = None
        self.work = {"own": [0, 0], "reference": [0, 0]}
        self.spent = 0.0
        self._watching = False
        self._subject: Subject | None = None
        self._device: torch.device | None = None
        self._depth = 0
        self._recorded = False
        self._since = 0.0
        self._hooks: dict[nn.Module, list[Any]] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the clock began to watch; with ``each``, since the latest pass began."""
        return perf_counter() - self._started

    def check(self) -> None:
        """Raise `Braked` where the claim has taken too long."""
        hanging.progress()
        slow = self._fastest > self.share and self._passes > 0
        if slow and (self._passes > 1 or self.elapsed > self.brake):
            raise Braked(f"one pass takes {self._fastest:.3g} s")
        if self.elapsed > self.brake:
            raise Braked(f"stopped after {self.elapsed:.3g} s")

    @contextmanager
    def watching(self, subject: Subject) -> Iterator[ForwardClock]:
        """Count passes within the block, including those that raise.

        The float64 reference's passes count as well, once the block has built it.
        """
        self._watching, self._subject, self._started = True, subject, perf_counter()
        self._device = subject.device  # asked of the model, it takes as long as a small layer
        self.watch(subject.model)
        if subject.reference is not None:  # no name, which would keep it in memory
            self.watch(subject.reference.model)
        subject.clocks.append(self)
        _CLOCKS.append(self)
        try:
            yield self
        finally:
            self._watching = False
            subject.clocks.remove(self)
            _CLOCKS.remove(self)
            self._unwatch()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Remove the hooks from the models within the block, which copies one of them."""
        models = self._unwatch()
        try:
            yield
        finally:
            for model in models:
                self.watch(model)

    def watch(self, model: nn.Module) -> None:
        """Also count the passes of ``model``, until the block ends."""
        # A model that compiles itself in place would trace the hooks, and lose the clock.
        enter, leave = map(torch.compiler.disable, (self._enter, self._leave))
        self._hooks[model] = [
            model.register_forward_pre_hook(enter, with_kwargs=True),
            model.register_forward_hook(leave, always_call=True),
        ]

    def _unwatch(self) -> list[nn.Module]:
        for hooks in self._hooks.values():
            for hook in hooks:
                hook.remove()
        models = list(self._hooks)
        self._hooks.clear()
        return models

    @contextmanager
    def _stepping(self, model: nn.Module, passes: int, tokens: float) -> Iterator[None]:
        if self._depth:  # within a pass, which counts as a whole
            yield
            return
        self._begin()
        self._depth, self._recorded, began = 1, False, perf_counter()
        try:
            yield
        finally:
            self._depth = 0
        self.spent += tokens
        took = perf_counter() - began
        self.seconds += took
        if self._is_of_the_size_of(model):
            self.work["own"][0] += passes
            self.work["own"][1] += round(tokens)
        else:
            self.elsewhere += took
        self.check()

    def _is_of_the_size_of(self, model: nn.Module) -> bool:
        if self._subject is None or model is self._subject.model:
            return True
        return _size(model) == _size(self._subject.model)

    def __deepcopy__(self, memo: dict[int, Any]) -> ForwardClock:
        """Copies of a watched model share its clock."""
        return self

    def _enter(self, module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._watching:
            return
        if self._depth == 0:
            self._recorded = self._capturing()
            if not self._recorded:
                self._begin()
                self._wait()  # or the pass would be charged with what was queued before
                self._since = perf_counter()
            for tensor in (*inputs[:1], *roles.fed(kwargs)):
                if torch.is_tensor(tensor) and tensor.ndim >= 2:
                    self.size = (tensor.shape[0], tensor.shape[1])
        self._depth += 1

    def _begin(self) -> None:
        if self.each:
            self._started = perf_counter()
        self.check()

    def _capturing(self) -> bool:
        return self._device is not None and accelerators.capturing(self._device)

    def _wait(self) -> None:
        """Wait for the model's device; for all of them where it lies on several."""
        if self._subject is None or self._device is None:
            return
        if weights.is_dispatched(self._subject.model):
            accelerators.wait_for_all(accelerators.kind_here())
        else:
            accelerators.wait(self._device)

    def _leave(self, module: nn.Module, _: Any, output: Any) -> None:
        if not self._watching:
            return
        self._depth -= 1
        if self._depth == 0:
            own = self._subject is not None and module is self._subject.model
            counts, (rows, tokens) = self.work["own" if own else "reference"], self.size or (1, 1)
            counts[0] += 1
            counts[1] += rows * tokens
            self.spent += max(rows * tokens, LEAST) * (3 if _has_gradients(output) else 1)
            # Nothing is computed while a graph is recorded, and to wait would end the recording.
            if self._recorded or self._capturing():
                return
            self._wait()
            took = perf_counter() - self._since
            self.seconds += took
            self._passes, self._fastest = self._passes + 1, min(self._fastest, took)
            self.check()


def _has_gradients(output: Any) -> bool:
    """Whether gradients can be taken of a pass with this ``output``, of any kind."""
    parts = output.values() if isinstance(output, dict) else output
    parts = parts if isinstance(parts, Iterable) and not torch.is_tensor(parts) else [parts]
    return any(torch.is_tensor(part) and part.requires_grad for part in parts)


def _size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@contextmanager
def stepping(model: nn.Module, passes: int, tokens: float) -> Iterator[None]:
    """Count the block as ``passes`` over ``tokens`` in all, by every clock that watches now.

    For steps that run a model's operations without calling it, and for untrained copies, whose
    calls no clock sees.  A clock that has run too long raises `Braked` before or after.
    """
    with ExitStack() as around:
        for clock in _CLOCKS:
            around.enter_context(clock._stepping(model, passes, tokens))
        yield
