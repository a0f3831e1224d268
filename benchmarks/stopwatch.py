"""Times calls only after the device has finished its work."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from assay.harness.models.machine import accelerators

Ended = Callable[[], Callable[[], float]]
"""Sets a second mark; returns a function for the seconds between both on the device's clock."""


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
    mark: Callable[[], Ended] | None = None

    @classmethod
    def of(cls, device: torch.device) -> Stopwatch:
        """For a GPU by events around the call and a synchronise after it."""
        if device.type not in accelerators.KINDS:
            return cls()
        return cls(wait=lambda: accelerators.wait(device), mark=lambda: _event(device))

    def lap(self, call: Callable[[], object]) -> Lap:
        """Time a call from a device at rest to a device at rest."""
        self.wait()
        ended = self.mark() if self.mark is not None else None
        begun = self.now()
        call()
        read = ended() if ended is not None else None
        self.wait()
        seconds = self.now() - begun
        return Lap(seconds, read() if read is not None else None)

    def to_the_end(self, call: Callable[[], object]) -> Callable[[], None]:
        """A function that runs ``call`` and waits for the device: for pytest-benchmark to time."""

        def whole() -> None:
            call()
            self.wait()

        return whole

    def timed(self, call: Callable[[], object]) -> Callable[[], float]:
        """A function that runs ``call`` and returns its seconds."""
        return lambda: self.lap(call).seconds


def _event(device: torch.device) -> Ended:
    """An event in the stream of ``device``; another one is set once the work is queued."""
    begun = _set_event(device)

    def ended() -> Callable[[], float]:
        end = _set_event(device)

        def seconds() -> float:
            end.synchronize()
            return float(begun.elapsed_time(end)) / 1e3

        return seconds

    return ended


def _set_event(device: torch.device) -> Any:
    """An event with a time, set now in the stream of ``device``; None where there are none."""
    of_kind = accelerators.module(device.type)
    made = getattr(of_kind, "Event", None)
    if made is None:
        made = getattr(getattr(of_kind, "event", None), "Event", None)  # as torch.mps has it
    if made is None:
        return None
    mark = made(enable_timing=True)
    if device.type == "mps":
        mark.record()
    else:
        with of_kind.device(device):
            mark.record()
    return mark
