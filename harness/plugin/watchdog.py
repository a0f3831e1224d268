"""The last resort: ends a process whose claim neither ends nor can be ended.

The brake strikes in the main thread (`harness.models.clock`), which code in C does not look out
for, and which a model's code can ignore.  The results told so far are stored by then.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import _exit  # what a claim cannot replace

import pytest

from assay.harness.checking.profiles import PROFILES
from assay.harness.models.alarm import last_sign
from assay.harness.models.clock import PATIENCE
from assay.harness.plugin.recording import Recorder
from assay.harness.plugin.request import RunRequest
from assay.harness.plugin.settling import claim_of

GRACE = 30.0
"""Seconds that the interpreter has to end, once the run has."""

SPARE = 60.0
"""Seconds beyond those after which the brake ends anything that it can end."""


@contextmanager
def watched(item: pytest.Item) -> Iterator[None]:
    """End the process if the block, a claim's test, goes on long after it should have been ended.

    The time starts again with what the brake watches one by one: the claim, then each probe.
    Not where a person may be at work in a debugger, nor for claims that run no model's code.
    """
    claim, asked = claim_of(item), RunRequest.of(item.config)
    limit = PROFILES[asked.profile].brake * (PATIENCE + 1) + SPARE
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
    told = [
        f"ERROR: {item.nodeid} hangs: nothing has ended in it for {limit:.0f} s and it "
        "cannot be stopped; the process ends",
    ]
    plugins = item.config.pluginmanager
    if isinstance(recorder := plugins.get_plugin("assay-recorder"), Recorder):
        told += [f"ERROR: without a verdict: {', '.join(recorder.left)}"]
        told += [f"--resume continues; --deselect '{item.nodeid}' leaves out what hangs"]
    try:
        if (capture := plugins.get_plugin("capturemanager")) is not None:
            capture.suspend_global_capture()
        os.write(2, ("\n" + "\n".join(told) + "\n").encode())
    finally:
        _exit(pytest.ExitCode.INTERRUPTED)


class Leaving:
    """A plug-in of pytest: ends a process that what a model has left behind keeps from ending.

    Such as a thread that is not a daemon, or a function of `atexit` that does not return.
    """

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """From now on the process may end."""
        threading.Thread(target=_see_off, args=(int(exitstatus),), daemon=True).start()


def _see_off(code: int) -> None:
    threading.main_thread().join()  # pytest may have been called by a program that goes on
    time.sleep(GRACE)
    os.write(2, b"\nWARNING: code of a model kept the process from ending; it is ended\n")
    _exit(code)
