"""Ctrl-C and SIGTERM end a run in order: temporary folders are removed, the report is written.

By default a process dies of SIGTERM at once.  Schedulers, containers and `timeout` send it.

`KeyboardInterrupt` is raised wherever the program is, and is lost in a callback from C, such as
those of the garbage collector: Python prints it and goes on.  It is then raised again, and not
printed, when the next test begins.

A second Ctrl-C, while the first ends the run, ends it at once: what was told is stored by then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest


class Terminated(KeyboardInterrupt):
    """The process was asked to end, by SIGTERM."""


HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
"""Python's own, which are replaced; others, such as a debugger's, stay."""


class Interrupts:
    """A plug-in of pytest, in the controlling process; changes nothing outside the main thread."""

    def __init__(self) -> None:
        self.asked: type[KeyboardInterrupt] | None = None
        self._ending = False
        self._replaced: list[signal.Signals] = []
        self._unraisable: Callable[[Any], Any] | None = None
        if threading.current_thread() is threading.main_thread():
            mine = [which for which, usual in HANDLERS.items() if signal.getsignal(which) == usual]
            self._replaced += mine
        for which in self._replaced:
            signal.signal(which, self._interrupt)

    def _interrupt(self, number: int, _: Any) -> None:
        # `timeout` sends SIGTERM twice, to the process and to its group; a second Ctrl-C is meant.
        if self.asked is not None and number == signal.SIGTERM:
            return
        if self._ending:
            os.write(2, b"\ninterrupted again: ended without a summary\n")
            os._exit(pytest.ExitCode.INTERRUPTED)
        self.asked = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        raise self.asked

    def pytest_sessionstart(self) -> None:
        """Print no interrupt that is lost: after `pytest_configure`, where pytest has its hook."""
        self._unraisable = sys.unraisablehook
        sys.unraisablehook = self._lost

    def _lost(self, what: Any) -> None:
        if self._unraisable is not None and not isinstance(what.exc_value, KeyboardInterrupt):
            self._unraisable(what)

    def pytest_keyboard_interrupt(self) -> None:
        """The run is ending: from now on an exception would only stop that halfway."""
        self._ending = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Stop where an interrupt was lost."""
        if self.asked is not None:
            raise self.asked

    def pytest_unconfigure(self) -> None:
        """Put back what was replaced."""
        if self._unraisable is not None:
            sys.unraisablehook = self._unraisable
        for which in self._replaced:
            signal.signal(which, HANDLERS[which])
