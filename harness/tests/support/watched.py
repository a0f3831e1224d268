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

import pytest
import torch
import transformers

from assay.harness.models import loading
from assay.harness.results.errors import BadInput
from assay.harness.tests.support import sessions

NETWORK = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostby",
    "socket.send",
    "socket.bind",
)
PROCESSES = (
    *("subprocess.Popen", "os.system", "os.exec", "os.spawn", "os.posix_spawn", "os.startfile"),
    *("os.fork", "pty.spawn"),
)
CHANGES = (
    *("os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir"),
    *("os.symlink", "os.truncate", "os.utime", "os.setxattr", "os.removexattr", "sqlite3.connect"),
)
"""What changes the paths among its arguments; opening a file to write is looked at apart."""

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
CODE = (".py", ".pyc", ".so")
SIGN = "hostile_code"
"""Stands in every text that must not be compiled."""

HARMLESS = frozenset({"fc-list", "uname"})
"""Programs that matplotlib starts to list fonts and `platform` to name the processor."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _in(path: object, folders: Sequence[Path]) -> bool:
    """Whether a path, or what it leads to, is one of ``folders`` or lies in one."""
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str | os.PathLike):
        return False
    places = Path(os.path.realpath(path)), Path(os.path.abspath(path))
    return any(place.is_relative_to(folder) for place in places for folder in folders)


class Watch:
    """Notes forbidden events in ``notes``, a file with one in each line; they go on to happen.

    ``folder`` is the untrusted one; files may be written in ``writable`` alone.
    """

    def __init__(self, folder: Path, writable: Sequence[Path], notes: Path) -> None:
        self.folders = [Path(os.path.realpath(folder))]
        self.writable = [Path(os.path.realpath(path)) for path in writable]
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
        if event.startswith(NETWORK):
            return str(arguments)
        if event.startswith(PROCESSES):
            program = os.path.basename(str(arguments[0])) if arguments else ""
            named = any(str(folder) in str(arguments) for folder in self.folders)
            return str(arguments[:2]) if named or program not in HARMLESS else ""
        if event.startswith(CHANGES):
            return self._change(event, arguments)
        look: dict[str, Callable[..., str]] = {
            "open": self._open,
            "compile": self._compile,
            "exec": self._exec,
            "import": self._import,
            "ctypes.dlopen": self._dlopen,
            "pickle.find_class": lambda *names: ".".join(map(str, names)),
        }
        return look[event](*arguments) if event in look else ""

    def _open(self, path: object, mode: object, flags: object) -> str:
        writes = isinstance(mode, str) and set("wax+") & set(mode)
        writes = writes or (isinstance(flags, int) and flags & WRITING)
        if isinstance(path, int):
            return ""
        if writes and not self._may_write(path):
            return f"writes {path}"
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if _in(path, self.folders) and name.endswith((*PICKLED, *CODE)):
            return f"reads {path}"
        return ""

    def _change(self, event: str, arguments: tuple[Any, ...]) -> str:
        paths = [each for each in arguments if isinstance(each, str | bytes | os.PathLike)]
        # `shutil.rmtree` names a file by its folder's descriptor, the last argument.
        last = arguments[-1] if len(arguments) > 1 and isinstance(arguments[-1], int) else -1
        if last > 0 and event in ("os.remove", "os.rmdir"):
            paths = [os.path.join(os.readlink(f"/proc/self/fd/{last}"), os.fsdecode(paths[0]))]
        wrong = [path for path in paths[:2] if not self._may_write(path)]
        return f"changes {wrong[0]}" if wrong else ""

    def _may_write(self, path: object) -> bool:
        if path in (os.devnull, ":memory:", ""):
            return True
        return isinstance(path, str | bytes | os.PathLike) and _in(
            os.path.realpath(path), self.writable
        )

    def _compile(self, source: object, filename: object) -> str:
        text = source.decode(errors="replace") if isinstance(source, bytes) else str(source)
        if SIGN in text or _in(filename, self.folders):
            return f"compiles {filename}"
        return ""

    def _exec(self, code: Any) -> str:
        file = code.co_filename
        return f"runs {file}" if _in(file, self.folders) or SIGN in code.co_names else ""

    def _import(self, module: str, file: object, *_: object) -> str:
        return f"imports {module} from {file}" if _in(file, self.folders) else ""

    def _dlopen(self, name: object) -> str:
        return f"loads {name}" if _in(name, self.folders) else ""


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
    sys.addaudithook(Watch(folder, [out], out / "notes"))


def run_claims(folder: Path, out: Path, arguments: Sequence[str]) -> None:
    """A run of claims in the clone, watched."""
    watch(folder, out)
    written = [f"--evidence={out / 'evidence.sqlite'}", f"--json={out / 'run.json'}"]
    written += [f"--report={out / 'page.html'}", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    sys.exit(pytest.main([f"--model={folder}", *written, *arguments]))


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
