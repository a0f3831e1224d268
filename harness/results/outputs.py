"""Checks the files that a run writes: no two outputs are one file, and none is an input."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import platform
import secrets
import sys
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import TextIO

import psutil

from assay.harness.results.errors import BadInput

NAME = 40
"""Characters of a file's name at the start of its draft's name: names have a maximum length."""

OPENINGS = {
    "--json": (b"{", "JSON"),
    "--report": (b"<", "HTML"),
    "--html": (b"<", "HTML"),
    "--out": (b"<", "HTML"),
    "--summary": (b"", "text"),
}
"""How what an option writes begins, and its format: other files are not replaced."""


def keep_apart(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None] | None = None
) -> None:
    """Raise `BadInput` where an output would replace another, an input, or a file of another kind.

    Both are paths by the user's name for them (``--json``), or None.  Links are followed.  An
    input that is a folder stands for every file in it.  Devices may be written twice.
    """
    for name, path in outputs.items():
        if path is not None and (why := _unwritable(path)):
            raise BadInput(f"{name} {path}: {why}; give a file's path")
    written = {name: path for name, path in outputs.items() if path and _is_file_to_be(path)}
    for (name, path), (other, other_path) in combinations(written.items(), 2):
        if is_same(path, other_path):
            raise BadInput(f"{name} {path}: is the file of {other} too; give each its own")
    for name, path in written.items():
        for other, read in (inputs or {}).items():
            if read is not None and (is_same(path, read) or _is_file_in(path, read)):
                raise BadInput(f"{name} {path}: is read as {other}; give another path")
    for name, path in outputs.items():
        if path is not None and name in OPENINGS and not _is_replaceable(path, name):
            raise BadInput(
                f"{name} {path}: exists and holds no {OPENINGS[name][1]}, so it is not replaced; "
                "give another path, or remove it"
            )


def keep_out(outputs: Mapping[str, Path | None], folders: Mapping[str, Path]) -> None:
    """Raise `BadInput` where an output would be put into one of ``folders``, new or not.

    Both are paths by the user's name for them, as for `keep_apart`.  Links are followed.
    """
    for name, path in outputs.items():
        for other, folder in folders.items():
            if path is not None and folder.is_dir() and _is_of(path, folder):
                raise BadInput(
                    f"{name} {path}: lies in the folder of {other}, where nothing is written; "
                    "give another path"
                )


def _unwritable(path: Path) -> str:
    """Why the path cannot be written; a shell's own pipe (``>(…)``) has a reader."""
    own = os.path.realpath(path).startswith(("/dev/", "/proc/"))
    if path.is_fifo() and not own:
        return "is a pipe, which may be read by nobody"
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "is a link to itself"
    return ""


def _is_replaceable(path: Path, name: str) -> bool:
    """Whether no file is there, or one of the format that the option ``name`` writes."""
    if not path.is_file():
        return True
    first, _ = OPENINGS[name]
    try:
        with path.open("rb") as file:
            start = file.read(64).lstrip()
    except OSError:
        return True  # writing says what is the matter
    return not start or (start.startswith(first) and b"\0" not in start)


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths name one file, which need not exist."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)
    except OSError:
        return False


def _is_file_to_be(path: Path) -> bool:
    return os.path.isfile(path) or not os.path.exists(path)


def _is_file_in(path: Path, folder: Path) -> bool:
    """Whether ``path`` is an existing file in a folder."""
    return os.path.isfile(path) and os.path.isdir(folder) and is_in(path, folder)


def _is_of(path: Path, folder: Path) -> bool:
    """Whether a path is ``folder``, lies in it, or is another name of a file in it."""
    if is_in(path, folder):
        return True
    try:
        if not path.is_file() or path.stat().st_nlink == 1:
            return False
        return any(each.is_file() and each.samefile(path) for each in folder.rglob("*"))
    except OSError:
        return False


def is_in(path: Path, folder: Path) -> bool:
    """Whether a path, which need not exist, is ``folder`` or lies in it; links are followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def replace_file(path: str | Path, text: str) -> None:
    """Replace the file by ``text`` as UTF-8, creating its folder; on failure the old one stays.

    A link stays a link, and a device or a pipe is written to directly.  The file that standard
    output or standard error goes to keeps what is in it.  BadInput if this fails.
    """
    try:
        target = Path(path)
        if (stream := _stream_to(target)) is not None:
            stream.write(text)
            stream.flush()
            return
        if target.exists() and not target.is_file():
            target.write_bytes(text.encode())
            return
        target = Path(os.path.realpath(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = _draft_of(target)
        try:
            with draft.open("xb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        why = "its folder is a file" if isinstance(error, FileExistsError) else error.strerror
        raise BadInput(f"{path}: cannot be written ({why}); give another path") from error


def _stream_to(target: Path) -> TextIO | None:
    """The process's standard output or error if it goes to the file ``target``."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if os.path.samestat(os.fstat(stream.fileno()), target.stat()):
                return stream
        except (AttributeError, OSError, ValueError):
            continue  # closed, replaced by an object without a descriptor, or no such file
    return None


def _draft_of(target: Path) -> Path:
    """A new file's path next to ``target``; removes drafts whose writers were killed."""
    host = hashlib.sha256(platform.node().encode()).hexdigest()[:8]  # folders may be shared
    mine = f".{target.name[:NAME]}.{host}-"
    for draft in target.parent.glob(f"{glob.escape(mine)}*.tmp"):
        writer = draft.name.removeprefix(mine).partition("-")[0]
        if writer.isdecimal() and not psutil.pid_exists(int(writer)):
            draft.unlink(missing_ok=True)
    return target.with_name(f"{mine}{os.getpid()}-{secrets.token_hex(4)}.tmp")
