"""Stops a run in which pytest takes the value of one of Assay's options for a test's path.

pytest looks for its settings and for conftest files next to every path among its arguments, before
it knows that ``--model`` takes a value: after a space, it takes a model's folder for a folder of
tests.  Written as one argument, ``--model=FOLDER``, the value is never taken for a path.

An install registers this module with pytest, which loads it before any conftest file.  It imports
nothing but pytest, and does nothing where neither the folder nor an argument lies in a clone or an
install of Assay.  Code that settings next to such a path name (``addopts = -p module``) has run
by then; the message names the file (SECURITY.md).
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

WRITTEN = frozenset({"--evidence", "--json", "--report", "--summary"})
"""Assay's options whose value is a file that the run writes: it exists when pytest-xdist's
workers read the same arguments.
"""

PATHS = WRITTEN | {"--model", "--expectations", "--device-map"}
"""Assay's options whose value may be a path."""

OPTIMISED = "python -OO, or PYTHONOPTIMIZE=2: transformers cannot be imported without docstrings"
"""Why nothing runs without docstrings, which transformers builds its own from."""

ROOMS = frozenset({"benchmarks", "claims"})
"""Folders of a clone where pytest looks for tests, and runs every conftest.py and __init__.py."""

PACKAGED = re.compile(r"assay\.claims(?:\.(\w+))?((?:::.*)?)$")
"""The claims by their names in the package, followed by a test's name."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser
) -> Generator[None, object, object]:
    """Reject paths that pytest would misread; raises `pytest.UsageError`.

    Where claims are named by ``--pyargs assay.claims``, run pytest on their folder instead.
    """
    invocation = early_config.invocation_params
    if "PYTEST_XDIST_WORKER" in os.environ:
        return (yield)  # the parent process has checked the same arguments
    if (paths := of_package(invocation.args)) != list(invocation.args):
        raise SystemExit(int(pytest.main(paths, invocation.plugins)))
    if not about_a_clone(invocation.dir, invocation.args):
        if any(arg.partition("=")[0] in PATHS for arg in invocation.args):
            # Printed only when pytest rejects its arguments.
            parser.extra_info["Assay"] = (
                "its options are known where its claims are run: assay check MODEL, or "
                "pytest --pyargs assay.claims --model=MODEL"
            )
        return (yield)
    if sys.flags.optimize > 1:
        raise pytest.UsageError(OPTIMISED)
    arguments = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *invocation.args]
    _refuse_values_apart(early_config, arguments)
    _refuse_models_among_code(invocation.dir, arguments)
    with _interrupts_in_one_line():
        return (yield)


def of_package(args: Sequence[str]) -> list[str]:
    """``args`` with paths in place of ``--pyargs assay.claims`` and of the modules in it.

    pytest looks for settings and plug-ins next to paths only; the options are declared there.
    """
    if "--pyargs" not in args or not any(PACKAGED.match(arg) for arg in args):
        return list(args)
    claims = Path(__file__).parents[2] / "claims"
    paths = []
    for arg in args:
        if (match := PACKAGED.match(arg)) is not None:
            module, rest = match.groups()
            arg = f"{claims / module}.py{rest}" if module else f"{claims}{rest}"
        if arg != "--pyargs":
            paths.append(arg)
    return paths


def _refuse_values_apart(early_config: pytest.Config, args: Sequence[str]) -> None:
    folder = early_config.invocation_params.dir
    for option, value in _apart(args):
        if option in WRITTEN or os.path.exists(folder / value):
            raise pytest.UsageError(
                f"{option} {value}: after a space pytest takes the path for a test's"
                f"{_settings_read(early_config)}; write {option}={value}, or assay check MODEL"
            )


def _settings_read(early_config: pytest.Config) -> str:
    """The settings that pytest read next to such a path; those of ``-c`` are the user's choice."""
    settings = early_config.inipath
    named = early_config.known_args_namespace.inifilename
    if settings is None or named is not None or in_a_clone(settings.parent):
        return ""
    return f", and has read settings in {settings}, so that code they name may have run"


def _refuse_models_among_code(directory: Path, args: Sequence[str]) -> None:
    written = [tuple(arg.split("=", 1)) for arg in args if arg.startswith("--model=")]
    for model in [value for option, value in [*_apart(args), *written] if option == "--model"]:
        if why := importable(model, directory):
            raise pytest.UsageError(f"{model}: {why}")


def importable(model: str, directory: Path) -> str:
    """Why files in the folder ``model`` could be run as code; empty if they could not, or if there
    is no such folder.

    ``directory`` is where the run was started.
    """
    folder = Path(os.path.realpath(directory / os.path.expanduser(model)))
    if not model.strip() or not os.path.isdir(folder):
        return ""
    # Editable installs leave names in it that are not paths.
    existing = [directory / entry for entry in sys.path if os.path.exists(directory / entry)]
    roots = [Path(os.path.realpath(entry)) for entry in existing]
    if any(entry.is_relative_to(folder) for entry in roots):
        return (
            "Python looks for modules in it, and its files could be run; start `pytest`, not "
            "`python -m pytest`, in another folder, and look at PYTHONPATH"
        )
    if Path(os.path.realpath(directory)).is_relative_to(folder):
        return (
            "the run was begun in it, where workers, git and matplotlib would read its files; "
            "begin it in another folder"
        )
    if folder.parent in roots and (folder / "__init__.py").exists():
        return "could be imported as a package, and its files be run; move it elsewhere"
    above = (folder, *folder.parents)
    if any(room.name in ROOMS and is_a_clone(room.parent) for room in above):
        return "lies where pytest looks for tests, and its files would be run; move it elsewhere"
    return ""


def in_a_clone(folder: Path) -> bool:
    """Whether ``folder`` is a clone of Assay, an install of it, or lies in one."""
    return any(is_a_clone(above) for above in (folder, *folder.parents))


def is_a_clone(folder: Path) -> bool:
    """Whether ``folder`` is the top of a clone of Assay, or of an install."""
    guard = folder / "harness" / "plugin" / Path(__file__).name
    return guard.is_file() and (folder / "claims").is_dir()


def about_a_clone(folder: Path, args: Sequence[str]) -> bool:
    """Whether the run was started in a clone, or one of ``args`` is a path in one.

    ``pytest path/to/assay/claims`` runs claims on another project's model.
    """
    values = {value for _, value in _apart(args)}
    paths = [arg for arg in args if arg not in values and not arg.startswith("-")]
    named = (Path(os.path.normpath(folder / path.partition("::")[0])) for path in paths)
    return in_a_clone(folder) or any(in_a_clone(path) for path in named if path.exists())


def _apart(args: Sequence[str]) -> list[tuple[str, str]]:
    """The options whose value is the next argument, with the value."""
    before = args[: args.index("--") if "--" in args else len(args)]
    return [(arg, value) for arg, value in pairwise(before) if arg in PATHS and value[:1] != "-"]


@contextmanager
def _interrupts_in_one_line() -> Iterator[None]:
    """Report an interrupt in one line while libraries are imported, which pytest does not do.

    transformers takes any exception in an import for a missing module, and so an interrupt too.
    """
    came = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.default_int_handler(number, frame)

    usual: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    main = threading.current_thread() is threading.main_thread()
    ours = [which for which in usual if main and signal.getsignal(which) == usual[which]]
    for which in ours:
        signal.signal(which, interrupt)
    try:
        yield
    except BaseException as error:
        if not came and not isinstance(error, KeyboardInterrupt):
            raise
        came = True
    finally:
        for which in ours:
            if signal.getsignal(which) == interrupt:
                signal.signal(which, usual[which])
    if came:
        for which in usual if main else ():  # the process ends, which takes a second
            signal.signal(which, signal.SIG_IGN)
        print("interrupted before any claim was run", file=sys.stderr)
        raise SystemExit(int(pytest.ExitCode.INTERRUPTED))
