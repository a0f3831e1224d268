"""Ends a process in which no pass of a model begins or ends for too long.

A claim that is late ends between two passes (`models.subject.clock`).  A pass that does not
return, or code in C that holds Python's lock, leaves no chance for that: `faulthandler` then
prints where every thread is and ends the process.  The results reported so far are stored.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

OFTEN = 1.0
"""Seconds after which a sign of progress sets the timer again; it takes a thread each time."""


_timer: dict[str, Any] = {}
"""The arguments of the timer that runs, if any."""

_set_at = 0.0


@contextmanager
def ended_after(seconds: float, file: int) -> Iterator[None]:
    """End the process with exit code 1 if the block makes no `progress` for so many seconds.

    ``file`` is the descriptor that tracebacks are printed to.
    """
    global _set_at
    _timer.update(timeout=seconds, file=file, exit=True)
    _set_at = monotonic()
    faulthandler.dump_traceback_later(**_timer)
    try:
        yield
    finally:
        _timer.clear()
        faulthandler.cancel_dump_traceback_later()


def progress() -> None:
    """Note that a pass begins or ends: within `ended_after`, its time starts again."""
    global _set_at
    if _timer and monotonic() - _set_at >= OFTEN:
        _set_at = monotonic()
        faulthandler.dump_traceback_later(**_timer)
