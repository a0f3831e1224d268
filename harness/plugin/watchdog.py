"""The last resort: ends a process whose claim neither ends nor can be stopped.

The brake raises in the main thread (`harness.models.clock`), which code in C does not notice,
and which a model's code can ignore.  The results reported so far are stored by then.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import _exit  # a claim cannot replace it

import pytest

from assay.harness.checking.profiles import PROFILES
from assay.harness.models.alarm import last_sign
from assay.harness.models.clock import PATIENCE
from assay.harness.plugin.recording import Recorder
from assay.harness.plugin.request import RunRequest
from assay.harness.plugin.settling import claim_of

GRACE = 30.0
"""Seconds that the interpreter has to exit after the run."""

SPARE = 60.0
"""Seconds beyond those after which the brake ends whatever it can end."""


@contextmanager
def watched(item: pytest.Item) -> Iterator[None]:
    """End the process if the block, a claim's test, runs long after it should have ended.

    The time starts again with each part that the brake limits: the claim, then each probe.
    Not where a person may be using a debugger, nor for claims that run no model's code.
    """
    claim, request = claim_of(item), RunRequest.of(item.config)
    limit = PROFILES[request.profile].brake * (PATIENCE + 1) + SPARE
    debugged = item.config.getoption("usepdb") or item.config.getoption("trace")
    if claim is None or claim.toy or debugged or limit > threading.TIMEOUT_MAX:
        yield
        return
    ended = threading.Event()
    threading.Thread(target=_watch, args=(item, limit, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _watch(item: pytest.Item, limit: float, ended: threading.Event) -> None:
    began = time.monotonic()
    while (left := max(began, last_sign()) + limit - time.monotonic()) > 0:
        if ended.wait(left):
            return
    _end(item, limit)


def _end(item: pytest.Item, limit: float) -> None:
    lines = [
        f"ERROR: {item.nodeid} hangs: nothing has ended in it for {limit:.0f} s and it "
        "cannot be stopped; the process ends",
    ]
    plugins = item.config.pluginmanager
    if isinstance(recorder := plugins.get_plugin("assay-recorder"), Recorder):
        lines += [f"ERROR: without a verdict: {', '.join(recorder.left)}"]
        lines += [f"--resume continues; --deselect '{item.nodeid}' leaves out what hangs"]
    try:
        if (capture := plugins.get_plugin("capturemanager")) is not None:
            capture.suspend_global_capture()
        os.write(2, ("\n" + "\n".join(lines) + "\n").encode())
    finally:
        _exit(pytest.ExitCode.INTERRUPTED)


class Leaving:
    """A plug-in of pytest: ends a process that leftovers of a model keep from exiting.

    Such as a thread that is not a daemon, or a function of `atexit` that does not return.
    """

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """From now on the process may exit."""
        threading.Thread(target=_exit_after_grace, args=(int(exitstatus),), daemon=True).start()


def _exit_after_grace(code: int) -> None:
    threading.main_thread().join()  # pytest may have been called by a program that continues
    time.sleep(GRACE)
    os.write(2, b"\nWARNING: code of a model kept the process from ending; it is ended\n")
    _exit(code)
