"""Ctrl-C and SIGTERM end a run in order: temporary folders are removed, the report is written.

By default a process dies of SIGTERM at once.  Schedulers, containers and `timeout` send it.

`KeyboardInterrupt` is raised wherever the program is, and is lost in a callback from C, such as
those of the garbage collector: Python prints it and continues.  Libraries may catch it.  It is
then raised again when the claim ends, and not printed.

Once the last claim has ended, or the first signal is being handled, an exception would only stop
the report halfway.  So the first signal after the last claim changes nothing, and a Ctrl-C that
comes a second or more after another signal ends the process at once: reported results are stored.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest


class Terminated(KeyboardInterrupt):
    """SIGTERM asked the process to end."""


HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
"""Python's own handlers, which are replaced; others, such as a debugger's, stay."""


REPEATED = 1.0
"""Seconds within which a second Ctrl-C counts as the first, sent twice."""


ENDING = 5.0
"""Seconds in which an interrupted process ends; another Ctrl-C in them changes nothing."""


class Heeding:
    """A plug-in of pytest: a claim during which the process was interrupted has no result.

    transformers, for one, takes an interrupt while it imports for a missing module.
    """

    interrupt: type[KeyboardInterrupt] | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Raise an interrupt that was lost while a model was loaded."""
        return (yield from self._heed())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Raise an interrupt that was lost in a claim."""
        return (yield from self._heed())

    def _heed(self) -> Generator[None, object, object]:
        try:
            result = yield
        except BaseException as error:
            if self.interrupt is None or isinstance(error, KeyboardInterrupt):
                raise
            raise self.interrupt from None
        if self.interrupt is not None:
            raise self.interrupt
        return result


class InWorker(Heeding):
    """In a worker process: the first Ctrl-C ends its run, and others do not end that report."""

    def __init__(self) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.interrupt = KeyboardInterrupt
        signal.default_int_handler(number, frame)


def _has_line(entry: Any) -> bool:
    """Whether pytest can show an entry of a traceback."""
    try:
        return bool(entry.lineno >= 0)
    except TypeError:
        return False


class Interrupts(Heeding):
    """In the controlling process; changes nothing outside the main thread."""

    def __init__(self) -> None:
        self._ending = False
        self._at = -math.inf
        self._replaced: list[signal.Signals] = []
        self._unraisable: Callable[[Any], Any] | None = None
        if threading.current_thread() is threading.main_thread():
            mine = [which for which, usual in HANDLERS.items() if signal.getsignal(which) == usual]
            self._replaced += mine
        for which in self._replaced:
            signal.signal(which, self._interrupt)

    def _interrupt(self, number: int, _: Any) -> None:
        first, since = self.interrupt is None, time.monotonic() - self._at
        self._at = time.monotonic()
        if first:
            self.interrupt = Terminated if number == signal.SIGTERM else KeyboardInterrupt
            if not self._ending:
                raise self.interrupt
        # `timeout` sends its signal twice, to the process and to its group.
        elif number == signal.SIGINT and since > REPEATED:
            os.write(2, b"\ninterrupted again: ended without a summary; --resume continues\n")
            os._exit(pytest.ExitCode.INTERRUPTED)

    def pytest_sessionstart(self) -> None:
        """Do not print lost interrupts: after `pytest_configure`, where pytest sets its hook."""
        self._unraisable = sys.unraisablehook
        sys.unraisablehook = self._lost

    def _lost(self, what: Any) -> None:
        if self._unraisable is not None and not isinstance(what.exc_value, KeyboardInterrupt):
            self._unraisable(what)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """The run is ending.

        An interrupt between two lines may leave an entry without a line's number in Python 3.11,
        which pytest cannot show.
        """
        self._ending = True
        excinfo.traceback = excinfo.traceback.filter(_has_line)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """All claims have ended; so does the run."""
        self._ending = True
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Raise an interrupt that was lost."""
        if self.interrupt is not None:
            raise self.interrupt

    def pytest_unconfigure(self) -> None:
        """Restore the handlers."""
        if self._unraisable is not None:
            sys.unraisablehook = self._unraisable
        for which in self._replaced:
            signal.signal(which, HANDLERS[which] if self.interrupt is None else self._late)

    def _late(self, number: int, frame: Any) -> None:
        """A signal after an interrupted run: heeded once the process should have ended."""
        if time.monotonic() - self._at > ENDING:
            signal.signal(number, HANDLERS[signal.Signals(number)])
            signal.raise_signal(number)
