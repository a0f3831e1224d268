"""Ctrl-C and SIGTERM end a run in order: temporary folders are removed, the report is written.

By default a process dies of SIGTERM at once.  Schedulers, containers and `timeout` send it.

`KeyboardInterrupt` is raised wherever the program is.  It is lost in a callback from C, and where
a library catches it, as transformers does while it imports; it is then raised again when the claim
ends.  Once the last claim has ended, an exception would only stop the report halfway.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Generator
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


class Interrupts:
    """A plug-in of pytest: a claim during which the process was interrupted has no result.

    The first signal raises `KeyboardInterrupt`, unless the last claim has ended.  A Ctrl-C that
    comes a second or more after another signal ends the process at once.  A ``worker`` leaves
    SIGTERM alone: pytest-xdist replaces one that dies.  Changes nothing outside the main thread.
    """

    def __init__(self, worker: bool = False) -> None:
        self.interrupt: type[KeyboardInterrupt] | None = None
        self._ending = False
        self._at = -math.inf
        self._replaced: list[signal.Signals] = []
        if threading.current_thread() is threading.main_thread():
            usual = [which for which in HANDLERS if signal.getsignal(which) == HANDLERS[which]]
            self._replaced = [each for each in usual if not worker or each is signal.SIGINT]
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

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Raise an interrupt that was lost between two claims."""
        if self.interrupt is not None:
            raise self.interrupt

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """The run is ending.

        Python 3.11 may give an interrupted entry no line's number, which pytest cannot show; the
        last entry raised the interrupt.
        """
        self._ending = True
        excinfo.traceback = excinfo.traceback[-1:]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """All claims have ended; so does the run."""
        self._ending = True
        return (yield)

    def pytest_unconfigure(self) -> None:
        """Restore the handlers."""
        for which in self._replaced:
            signal.signal(which, HANDLERS[which])
