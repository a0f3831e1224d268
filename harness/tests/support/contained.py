"""Where a case of fuzzing runs: with no process, no network, and so much memory and time."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import psutil

import assay.harness.cli.kills as kills_command
from assay.fixtures.families import survey
from assay.harness.cli.invert import Inverter

PACKAGE = Path(__file__).parents[2] / "package"

SECONDS = 30.0
"""A case that takes longer hangs."""

ROOM = 4 * 2**30
"""Bytes that a case may set aside."""

platform.platform()  # it and fonts begin a process the first time; no case may
importlib.import_module("matplotlib.font_manager")


class Started(BaseException):
    """The case was accepted: it is about to begin what takes long."""


class Hangs(BaseException):
    """The case takes too long."""


@contextlib.contextmanager
def contained_in(root: Path, seconds: float) -> Iterator[None]:
    """No process, no network, so much memory and time; a working and a temporary folder."""
    with (
        contextlib.chdir(root / "work"),
        patch.dict(os.environ, _variables(root), clear=True),
        patch.object(tempfile, "tempdir", str(root / "tmp")),
        patch.object(sys, "dont_write_bytecode", True),
        patch.object(subprocess, "Popen", _start),
        patch.object(Inverter, "invert", _start),
        patch.object(survey, "survey", _start),
        patch.object(kills_command.Working, "families", _start),
        patch.object(socket, "getaddrinfo", _no_network),
        patch.object(socket.socket, "connect", _no_network),
        _limited(seconds),
    ):
        try:
            yield
        finally:
            gc.unfreeze()  # what a run of pytest set aside


def _variables(root: Path) -> dict[str, str]:
    """The environment of a case."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "HYPOTHESIS_"))}
    keep |= {"COLUMNS": "160", "TMPDIR": str(root / "tmp"), "HOME": str(root / "work")}
    keep |= {"MPLCONFIGDIR": str(root / "cache")}
    keep |= {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}
    return keep | {"XDG_CACHE_HOME": str(root / "cache"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _start(*_: Any, **__: Any) -> NoReturn:
    raise Started


def _no_network(*_: Any, **__: Any) -> NoReturn:
    raise OSError("tests of input have no network")


def _hang(*_: Any) -> NoReturn:
    raise Hangs


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `Hangs` after so many seconds, and end the process after thrice as many."""
    before = signal.signal(signal.SIGALRM, _hang)
    terminated = signal.getsignal(signal.SIGTERM)  # a command may set its own
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + ROOM, limits[1]))
    faulthandler.dump_traceback_later(3 * seconds, exit=True, file=sys.__stderr__)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGTERM, terminated)
