"""A timer that interrupts the main thread in whatever it does: a loop, a sleep, a wait."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Strike = Callable[[FrameType | None], None]
"""Is given the frame that the program was in; what it raises is raised there."""

_signs = [time.monotonic()]
"""When a block last began or ended, whether or not a timer could be set for it."""

MOST = 1e8
"""Seconds from which on a timer is none: systems refuse longer ones."""


class _Handler:
    """What is called on the signal; other handlers are not of this class."""

    def __init__(self, strike: Strike) -> None:
        self.strike = strike

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.strike(frame)


def last_sign() -> float:
    """When a block last began or ended, by `time.monotonic`: a sign that the process gets on."""
    return _signs[0]


@contextmanager
def striking(first: float, every: float, strike: Strike) -> Iterator[None]:
    """Call ``strike`` after ``first`` seconds of the block and ``every`` so many after that.

    Nothing is done where it cannot be: in another thread than the main one, under a system without
    such timers, and where somebody else has set one.  A block within the block has its own timer;
    the outer one goes on after it.
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
        restore()  # it may have struck just before
        raise


def _free() -> bool:
    """Whether the one timer that a process has can be set here."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if not hasattr(signal, "setitimer"):
        return False
    handler = signal.getsignal(signal.SIGALRM)
    unused = handler is not None and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    return unused or isinstance(handler, _Handler)
