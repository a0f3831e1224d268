"""What must hold for every input, however damaged, and what runs one case of it.

A case runs in this process, in a folder of its own.  One that would start another process, or
hours of work, ends there: its input was accepted.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import hashlib
import importlib
import io
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import psutil
import pytest
from hypothesis import HealthCheck, Phase, settings

import assay.harness.cli.kills as kills_command
from assay.fixtures.families import survey
from assay.harness.cli.invert import Inverter
from assay.harness.cli.main import main

LINES = 3
"""Lines of an error, at most."""

REFUSED = 4
EXITS = {"pytest": {0, 1, REFUSED, 5}, "harness": {0, 1, REFUSED}}
"""The exit codes of the README; the others are of a run that is interrupted or breaks."""

OF_PYTEST = ("inifile:", "rootdir:", "ERROR: usage:", "(no match in any of")
"""What pytest adds to a line about an unknown option, or a path that it does not find."""

LATE = ("--evidence=", "--junitxml=")
"""Outputs of a run that may exist before a model turns out to be bad."""

SECONDS, BYTES = 30.0, 4 * 2**30
"""Time and memory of a case."""

CASES = int(os.environ.get("FUZZ_CASES", "200"))
"""All cases of all tests together; `tox -e nightly` asks for more, and draws others."""

SETTINGS = (
    *("-p", "assay.harness.plugin.hooks", "-p", "assay.fixtures.subjects"),
    *("-p", "no:cacheprovider", "-p", "no:faulthandler"),
    *("--capture=no", "--import-mode=importlib", "--tb=native"),
)
"""Of the runs of pytest: tracebacks as Python has them, no files of pytest's own."""

platform.platform()  # it and fonts start a process the first time; no case may
importlib.import_module("matplotlib.font_manager")


def cases(share: float) -> Callable[[Any], Any]:
    """The settings of a test that has this share of all cases."""
    return settings(
        max_examples=max(1, round(CASES * share)),
        derandomize="FUZZ_CASES" not in os.environ,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )


class Started(BaseException):
    """The case was accepted: it is about to begin what takes long."""


class Hangs(BaseException):
    """The case takes too long."""


def _raise(error: type[BaseException]) -> Callable[..., NoReturn]:
    def raise_it(*_: Any, **__: Any) -> NoReturn:
        raise error

    return raise_it


@contextlib.contextmanager
def contained(root: Path, seconds: float) -> Iterator[None]:
    """No process, no network, limited memory and time; a working and a temporary folder."""
    own = {"COLUMNS": "160", "HF_HUB_OFFLINE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    own |= {name: str(root) for name in ("TMPDIR", "HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME")}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "HYPOTHESIS_"))}
    start, refuse = _raise(Started), _raise(OSError)
    before = signal.signal(signal.SIGALRM, _raise(Hangs))
    terminated = signal.getsignal(signal.SIGTERM)  # a command may set its own
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with (
        contextlib.chdir(root / "work"),
        patch.dict(os.environ, kept | own, clear=True),
        patch.object(tempfile, "tempdir", str(root)),
        patch.object(sys, "dont_write_bytecode", True),
        patch.object(subprocess, "Popen", start),
        patch.object(Inverter, "invert", start),
        patch.object(survey, "survey", start),
        patch.object(kills_command.Working, "families", start),
        patch.object(socket, "getaddrinfo", refuse),
        patch.object(socket.socket, "connect", refuse),
    ):
        used = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, limits[1]))
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
            gc.unfreeze()  # what a run of pytest set aside


def snapshot(folder: Path) -> dict[str, str]:
    """Every file under a folder with the digest of its content."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return {str(path.relative_to(folder)): digest for path, digest in digests.items()}


@dataclass
class Room:
    """An empty folder for a case: files are put into ``work``, and arguments name them there."""

    root: Path

    @property
    def work(self) -> Path:
        """Where the case runs."""
        return self.root / "work"

    def check(self, program: str, *arguments: str) -> None:
        """Run ``pytest`` or ``assay`` here; fails if it does what it must not."""
        __tracebackhide__ = True
        words = list(arguments)
        run = (
            (lambda: pytest.main([*SETTINGS, *words]))
            if program == "pytest"
            else (lambda: main(words))
        )
        complaints = self.wrong(run, program, words)
        assert not complaints, "\n".join([str(words), *complaints])

    def wrong(
        self,
        run: Callable[[], int],
        program: str,
        arguments: Sequence[str],
        seconds: float = SECONDS,
    ) -> list[str]:
        """What ``run`` did that no input may bring about; empty if all is well."""
        before = snapshot(self.work)
        output, errors = io.StringIO(), io.StringIO()
        code: int | None = None
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                with contained(self.root, seconds):
                    code = int(run())
            except Started:
                return []
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else int(bool(error.code))
            except BaseException:
                return [f"a traceback: {traceback.format_exc()}"]
        text = output.getvalue() + errors.getvalue()
        if "Traceback (most recent call last)" in text or "INTERNALERROR" in text:
            return [f"a traceback: {text}"]
        complaints = [] if code in EXITS[program] else [f"exit code {code}: {text}"]
        late = [line for line in output.getvalue().splitlines() if line.startswith("ERROR: ")]
        lines = _lines([*errors.getvalue().splitlines(), *late])
        if code == REFUSED and not 1 <= len(lines) <= LINES:
            complaints.append(f"{len(lines)} lines of error: {text}")
        if code == REFUSED:
            arguments = [a for a in arguments if program == "pytest" and a.startswith(LATE)]
        named = " ".join(arguments) + " swept.sqlite"  # which the plan of a sweep names
        changed = dict(snapshot(self.work).items() ^ before.items())
        strangers = [name for name in changed if not any(p in named for p in Path(name).parts)]
        return complaints + [f"changed: {name}" for name in strangers]


def _lines(lines: Sequence[str]) -> list[str]:
    """The lines of an error; pytest has one for each path that it does not find."""
    own = [line for line in lines if line.strip() and not line.strip().startswith(OF_PYTEST)]
    missing = [line for line in own if line.startswith("ERROR: not found: ")]
    return [line for line in own if line not in missing[1:]]
