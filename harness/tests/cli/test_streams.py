"""Commands write to streams of few characters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {"list": ["list", "--markdown=law"], "explain": ["explain", "C2"]}


def shell(line: str, cwd: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a shell's line, in which ``"$@"`` is the command."""
    done = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-m", "assay", *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.decode("latin-1"), done.stderr.decode("latin-1")


@pytest.mark.parametrize("name", COMMANDS)
def test_characters_that_an_encoding_lacks_are_escaped(tmp_path: Path, name: str) -> None:
    code, out, errors = shell('"$@"', tmp_path, *COMMANDS[name], PYTHONIOENCODING="ascii")
    assert (code, errors) == (0, "")
    assert out
