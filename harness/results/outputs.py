"""Checks the files that a run writes: no two outputs are one file, and none is an input."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import TextIO

from assay.harness.results.errors import BadInput


def keep_apart(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None] | None = None
) -> None:
    """Raise `BadInput` where an output would replace another or an input, or lie in an input.

    Both are paths by the user's name for them (``--json``), or None.  Links are followed.
    Devices and pipes may be written twice.
    """
    written = {name: path for name, path in outputs.items() if path is not None}
    for (name, path), (other, other_path) in combinations(written.items(), 2):
        a_file = os.path.isfile(path) or not os.path.exists(path)
        if a_file and is_same(path, other_path):
            raise BadInput(f"{name} {path}: is the file of {other} too; give each its own")
    for name, path in written.items():
        for other, read in (inputs or {}).items():
            if read is None or not os.path.exists(read):
                continue
            if is_same(path, read) or is_in(path, read):
                raise BadInput(
                    f"{name} {path}: {other} is read from there, where nothing is written; give "
                    "another path"
                )


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths name one file, which need not exist."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)
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
        draft = target.with_name(f".{target.name[:40]}.{os.getpid()}.tmp")
        try:
            with draft.open("wb") as file:
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
