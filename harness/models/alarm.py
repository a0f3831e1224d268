"""A timer that interrupts the main thread wherever it is: a loop, a sleep, a wait."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Strike = Callable[[FrameType | None], None]
"""A function of the interrupted frame; its exception is raised there."""

_signs = [time.monotonic()]
"""The time when a block last began or ended, with or without a timer."""

MOST = 1e8
"""Seconds from which no timer is set: systems reject longer ones."""


class _Handler:
    """The signal's handler; its class distinguishes it from other handlers."""

    def __init__(self, strike: Strike) -> None:
        self.strike = strike

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.strike(frame)


def last_sign() -> float:
    """The `time.monotonic` when a block last began or ended: a sign of progress."""
    return _signs[0]


@contextmanager
def striking(first: float, every: float, strike: Strike) -> Iterator[None]:
    """Call ``strike`` after ``first`` seconds of the block and then ``every`` that many seconds.

    Does nothing in another thread than the main one, on a system without such timers, and where
    other code has set one.  A nested block has its own timer; the outer one resumes after it.
    """
    _signs[0] = time.monotonic()
    try:
        with _timer(first, every, strike):
            yield
    finally:
        _signs[0] = time.monotonic()


@contextmanager
def _timer(first: float, every: float, strike: Strike) -> Iterator[None]:
    if first > MOST or not _free():
        yield
        return
    before = signal.getsignal(signal.SIGALRM)
    rest = signal.setitimer(signal.ITIMER_REAL, 0)

    def restore() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *rest)

    signal.signal(signal.SIGALRM, _Handler(strike))
    signal.setitimer(signal.ITIMER_REAL, max(first, 1e-3), max(every, 1e-3))
    try:
        try:
            yield
        finally:
            restore()
    except BaseException:
        restore()  # the timer may have struck just before
        raise


def _free() -> bool:
    """Whether the process's only timer can be set here."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if not hasattr(signal, "setitimer"):
        return False
    handler = signal.getsignal(signal.SIGALRM)
    unused = handler is not None and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    return unused or isinstance(handler, _Handler)
