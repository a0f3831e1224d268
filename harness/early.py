"""Lets ``pytest --model FOLDER`` mean what it says.

pytest settles its root folder, its configuration file and which conftest files to load before
anybody has told it that ``--model`` takes a value.  An existing path that follows such an option
is a test path to it: the root becomes a folder around that path, Assay's own configuration and
conftest are not found (``unrecognized arguments: --model``), and a conftest.py beside the model
would be run.  Written in one piece, ``--model=FOLDER``, the value is never taken for a path.

So this plug-in, which an install registers with pytest, joins such options to their values and
runs pytest once more, in this process, before any conftest is loaded or output captured.
`Config` offers no way to settle the root a second time but private ones; a new process would
cost a debugger, a coverage measurement or the interpreter's own options that the first one had.
The first pytest ends by SystemExit with the second one's exit code.

Where neither the folder nor an argument lies in a clone of Assay nothing happens.  Not caught: a
model's folder with a pytest configuration that pytest refuses before plug-ins are asked; there,
write ``--model=FOLDER``.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Generator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

TAKE_VALUES = frozenset(
    {
        "--model",
        "--plant",
        "--claim",
        "--revision",
        "--device",
        "--device-map",
        "--dtype",
        "--attention",
        "--attends",
        "--rounding",
        "--allocation",
        "--profile",
        "--seed",
        "--replay",
        "--evidence",
        "--json",
        "--report",
        "--expectations",
    }
)
"""Assay's options that are followed by a value; `harness.options` would have to import torch."""

WRITTEN = frozenset({"--evidence", "--json", "--report"})
"""Those whose value is a file that the run writes: by the time that pytest-xdist's workers read
the same arguments it is there, whether it was before or not."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    """Run pytest again if it has taken a value of Assay's options for a test path."""
    given = early_config.invocation_params
    if "PYTEST_XDIST_WORKER" in os.environ:
        return (yield)  # its claims are dealt by a run that has begun
    # Options may come by the environment as well.
    added = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    if about_a_clone(given.dir, given.args) and (misleads(given.args) or misleads(added)):
        if added:
            os.environ["PYTEST_ADDOPTS"] = shlex.join(joined(added))
        # Found by way of the install, and perhaps another clone's: with the root known, pytest
        # finds them in this clone.
        for name in ("harness.early", "harness"):
            sys.modules.pop(name, None)
        raise SystemExit(int(pytest.main(joined(given.args), given.plugins)))
    return (yield)


def in_a_clone(folder: Path) -> bool:
    """Whether ``folder`` is a clone of Assay or lies in one."""
    above = (folder, *folder.parents)
    return any((f / "harness" / "early.py").is_file() and (f / "claims").is_dir() for f in above)


def about_a_clone(folder: Path, args: Sequence[str]) -> bool:
    """Whether the run is begun in a clone, or one of ``args`` is a path in one.

    Claims are run on another project's model by ``pytest path/to/assay/claims --model FOLDER``.
    """
    values = {i + 1 for i in _apart(args)}
    paths = [arg for i, arg in enumerate(args) if i not in values and not arg.startswith("-")]
    asked = (Path(os.path.normpath(folder / path.partition("::")[0])) for path in paths)
    return in_a_clone(folder) or any(in_a_clone(path) for path in asked if path.exists())


def misleads(args: Sequence[str]) -> bool:
    """Whether a value that stands apart from its option is the name of something there, or will
    be before the run ends.
    """
    return any(args[i] in WRITTEN or os.path.exists(args[i + 1]) for i in _apart(args))


def joined(args: Sequence[str]) -> list[str]:
    """The same arguments with ``--option value`` written as ``--option=value``."""
    apart = set(_apart(args))
    values = {i + 1 for i in apart}
    pairs = enumerate(args)
    return [f"{arg}={args[i + 1]}" if i in apart else arg for i, arg in pairs if i not in values]


def _apart(args: Sequence[str]) -> list[int]:
    """Where in ``args`` an option of Assay's stands whose value is the next argument."""
    ends = args.index("--") if "--" in args else len(args)
    pairs = enumerate(pairwise(args[:ends]))
    return [i for i, (arg, value) in pairs if arg in TAKE_VALUES and not value.startswith("-")]
