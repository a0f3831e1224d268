"""Standard streams that every command can write to: some processes are started without them."""

from __future__ import annotations

import io
import os
import sys

from assay.harness.results.errors import BadInput


def prepare() -> None:
    """Open closed streams, and write escapes for characters that an encoding lacks.

    A closed descriptor would be given to the next file that is opened, such as the evidence, and
    what a library prints would end in it.  Raises `BadInput` where the current folder is gone.
    """
    for descriptor in range(3):  # the lowest that is free is opened
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        os.getcwd()
    except OSError as error:
        raise BadInput("the current folder does not exist any more; change to another") from error
