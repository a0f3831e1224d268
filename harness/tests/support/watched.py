"""Runs under an audit hook, which notes whatever an untrusted folder must never lead to.

Python reports what it is about to do (`sys.addaudithook`): a hook cannot be removed, so that all
of this happens in a process of its own.  Native code that calls the system by itself is not seen.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import transformers

from assay.harness.cli.main import main
from assay.harness.models.loading import loading
from assay.harness.results.errors import BadInput
from assay.harness.tests.support import sessions

FORBIDDEN = (
    *("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.send", "socket.bind"),
    *("subprocess.Popen", "os.system", "os.exec", "os.spawn", "os.posix_spawn", "os.fork"),
    "pickle.find_class",
)
"""The beginnings of events that must not happen: network, processes, pickles."""

CHANGES = (
    *("os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink"),
    *("os.truncate", "os.utime", "sqlite3.connect"),
)
"""What changes the paths among its arguments; opening a file to write is looked at apart."""

UNREAD = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".py", ".pyc", ".so")
"""Files of pickles and code, which are not even opened."""

SIGN = "hostile_code"
"""Stands in every text that must not be compiled."""

HARMLESS = frozenset({"fc-list", "uname"})
"""Programs that matplotlib starts to list fonts and `platform` to name the processor."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Watch:
    """Notes forbidden events in ``notes``, a file with one in each line; they go on to happen.

    ``folder`` is the untrusted one; files may be written in ``writable`` alone.
    """

    def __init__(self, folder: Path, writable: Path, notes: Path) -> None:
        self.folder, self.writable = Path(os.path.realpath(folder)), Path(writable)
        self.notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.busy = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The hook itself; what it does is not looked at."""
        if self.busy:
            return
        self.busy = True
        try:
            if why := self.objection(event, arguments):
                os.write(self.notes, f"{event}: {why}"[:500].replace("\n", " ").encode() + b"\n")
        finally:
            self.busy = False

    def objection(self, event: str, arguments: tuple[Any, ...]) -> str:
        """What is wrong with an event, or empty."""
        if event.startswith(FORBIDDEN):
            program = os.path.basename(str(arguments[0])) if arguments else ""
            harmless = program in HARMLESS and str(self.folder) not in str(arguments)
            return "" if harmless else str(arguments[:2])
        if event == "open":
            return self._open(*arguments)
        if event.startswith(CHANGES):
            return self._change(event, arguments)
        if event in ("compile", "exec"):
            code = arguments[0]
            text = code if event == "compile" else code.co_names
            text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
            file = arguments[1] if event == "compile" else code.co_filename
            return f"{event}s {file}" if SIGN in text or self._is_in(file, self.folder) else ""
        loaded = arguments[:2] if event in ("import", "ctypes.dlopen") else ()
        return str(loaded) if any(self._is_in(each, self.folder) for each in loaded) else ""

    def _open(self, path: object, mode: object, flags: object) -> str:
        writes = isinstance(mode, str) and set("wax+") & set(mode)
        writes = writes or (isinstance(flags, int) and flags & WRITING)
        if writes and not isinstance(path, int) and not self._may_write(path):
            return f"writes {path}"
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        unread = name.endswith(UNREAD) and self._is_in(path, self.folder)
        return f"reads {path}" if unread else ""

    def _change(self, event: str, arguments: tuple[Any, ...]) -> str:
        paths = [each for each in arguments if isinstance(each, str | bytes | os.PathLike)]
        # `shutil.rmtree` names a file by its folder's descriptor, the last argument.
        last = arguments[-1] if len(arguments) > 1 and isinstance(arguments[-1], int) else -1
        if last > 0 and event in ("os.remove", "os.rmdir"):
            paths = [os.path.join(os.readlink(f"/proc/self/fd/{last}"), os.fsdecode(paths[0]))]
        wrong = [path for path in paths[:2] if not self._may_write(path)]
        return f"changes {wrong[0]}" if wrong else ""

    def _may_write(self, path: object) -> bool:
        return path in (os.devnull, ":memory:", "") or self._is_in(path, self.writable)

    @staticmethod
    def _is_in(path: object, folder: Path) -> bool:
        """Whether a path, links followed, is ``folder`` or lies in it."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return Path(os.path.realpath(os.fsdecode(path))).is_relative_to(os.path.realpath(folder))


def start(target: Callable[..., None], *arguments: Any) -> int:
    """Run ``target`` in a process of its own that has the big libraries; its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(sessions.PRELOAD)
    process = context.Process(target=target, args=arguments)
    process.start()
    process.join(sessions.PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode or 0


def watch(folder: Path, out: Path) -> None:
    """From now on note in ``out/notes`` what must not happen; files may be written in ``out``."""
    for name in [name for name in os.environ if name.startswith(sessions.NOT_FOR_CHILDREN)]:
        del os.environ[name]
    homes = ("HOME", "XDG_CACHE_HOME", "TMPDIR", "MPLCONFIGDIR", "HYPOTHESIS_STORAGE_DIRECTORY")
    for name in homes:
        (out / name).mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(out / name)
    tempfile.tempdir = None  # it may have been looked up before
    transformers.dynamic_module_utils.HF_MODULES_CACHE = str(out / "modules")
    sys.dont_write_bytecode = True
    sys.path[:] = [str(sessions.ROOT), *(path for path in sys.path if path)]
    descriptor = os.open(out / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(sessions.ROOT)
    sys.addaudithook(Watch(folder, out, out / "notes"))


def run_claims(folder: Path, out: Path, arguments: Sequence[str]) -> None:
    """`assay check` on a folder, watched."""
    watch(folder, out)
    written = [f"--evidence={out / 'evidence.sqlite'}", f"--json={out / 'run.json'}"]
    written += [f"--report={out / 'page.html'}", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    sys.exit(main(["check", str(folder), *written, *arguments]))


def load_all(folder: Path, out: Path, arguments: Mapping[str, Mapping[str, Any]]) -> None:
    """Load every folder in ``folder``; ``out/said`` has what each was refused for, or empty."""
    watch(folder, out)
    said = {}
    for name, more in arguments.items():
        os.write(1, f"{name}\n".encode())
        try:
            loading.load(
                str(folder / name), dtype=torch.float32, device=torch.device("cpu"), **more
            )
            said[name] = ""
        except BadInput as error:
            said[name] = str(error)
    (out / "said").write_text(json.dumps(said))


def act(folder: Path, out: Path, actions: Sequence[Callable[[Path], object]]) -> None:
    """Do what must be noticed, one after another; ``out/notes`` names each before its notes."""
    watch(folder, out)
    notes = os.open(out / "notes", os.O_WRONLY | os.O_APPEND)
    for action in actions:
        os.write(notes, f"# {action.__name__}\n".encode())
        with suppress(Exception, SystemExit):
            action(folder)
