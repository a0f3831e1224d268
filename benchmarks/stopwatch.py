"""Time that can be believed: the device has done its work before the clock is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

Elapsed = Callable[[], float]
"""Seconds on the device's own clock since a mark was set, up to when this is called."""


@dataclass(frozen=True)
class Lap:
    """A call's ``seconds`` by the host's clock, and by the ``device``'s own if it has one."""

    seconds: float
    device: float | None = None


@dataclass(frozen=True)
class Stopwatch:
    """The host's clock ``now``; ``wait`` until the device is done; ``mark`` its own clock."""

    now: Callable[[], float] = time.perf_counter
    wait: Callable[[], object] = lambda: None
    mark: Callable[[], Elapsed] | None = None

    @classmethod
    def of(cls, device: torch.device) -> Stopwatch:
        """For CUDA by events around the call and a synchronise after it."""
        if device.type != "cuda":
            return cls()
        return cls(wait=lambda: torch.cuda.synchronize(device), mark=lambda: _cuda_event(device))

    def lap(self, call: Callable[[], object]) -> Lap:
        """Time a call from a device at rest to a device at rest."""
        self.wait()
        elapsed = self.mark() if self.mark is not None else None
        begun = self.now()
        call()
        self.wait()
        seconds = self.now() - begun
        return Lap(seconds, elapsed() if elapsed is not None else None)

    def timed(self, call: Callable[[], object]) -> Callable[[], float]:
        """``call``, told as the seconds that it takes."""
        return lambda: self.lap(call).seconds


def _cuda_event(device: torch.device) -> Elapsed:
    """An event in the stream of ``device``, and the seconds from it to another one set then."""
    with torch.cuda.device(device):
        begun = torch.cuda.Event(enable_timing=True)
        begun.record()

    def elapsed() -> float:
        with torch.cuda.device(device):
            ended = torch.cuda.Event(enable_timing=True)
            ended.record()
            ended.synchronize()
        return begun.elapsed_time(ended) / 1e3

    return elapsed
