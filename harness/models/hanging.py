"""Ends a process in which no pass of a model begins or ends for too long.

A claim that is late ends between two passes (`harness.models.clock`).  A pass that does not
return, or code in C that holds Python's lock, leaves no chance for that: `faulthandler` then
prints where every thread is and ends the process.  The results reported so far are stored.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

OFTEN = 1.0
"""Seconds after which a sign of progress sets the timer again; it takes a thread each time."""


@dataclass
class _Timer:
    seconds: float
    file: int
    set_at: float


_timers: list[_Timer] = []


@contextmanager
def ended_after(seconds: float, file: int) -> Iterator[None]:
    """End the process with exit code 1 if the block makes no `progress` for so many seconds.

    ``file`` is the descriptor that tracebacks are printed to.
    """
    _timers.append(_Timer(seconds, file, -OFTEN))
    progress()
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        _timers.pop()


def progress() -> None:
    """Note that a pass begins or ends: within `ended_after`, its time starts again."""
    if _timers and monotonic() - _timers[-1].set_at >= OFTEN:
        timer = _timers[-1]
        faulthandler.dump_traceback_later(timer.seconds, exit=True, file=timer.file)
        timer.set_at = monotonic()
