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

Where neither the folder nor an argument lies in a clone of Assay nothing happens.

pytest reads the configuration beside such a value before any plug-in is asked, and runs what that
names (``addopts = -p module``, ``pythonpath``).  That cannot be prevented here: the run is refused
once it has happened.  Only ``--model=FOLDER`` keeps pytest from reading there (SECURITY.md).
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
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
        "--summary",
        "--expectations",
    }
)
"""Assay's options that are followed by a value; `harness.plugin.options` would have to import
torch."""

WRITTEN = frozenset({"--evidence", "--json", "--report", "--summary"})
"""Those whose value is a file that the run writes: by the time that pytest-xdist's workers read
the same arguments it is there, whether it was before or not."""

ROOMS = frozenset({"benchmarks", "claims"})
"""Folders of a clone where pytest looks for tests, and runs every conftest.py and __init__.py."""


PACKAGED = re.compile(r"assay\.claims(?:\.(\w+))?((?:::.*)?)$")
"""The claims by their names in the package, and what follows: a test's name."""

NUMBER = re.compile(r"-\d+|-\d*\.\d+")
"""What argparse takes for a value though it begins with a dash."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Say where Assay's options are known, and how a value is written that begins with a dash.

    No option is added: this is the one hook that is called before pytest reads its arguments.
    """
    config = pluginmanager.get_plugin("pytestconfig")
    given = config.invocation_params if config is not None else None
    if given is None:
        return
    if about_a_clone(given.dir, given.args):
        for option, value in _pairs(given.args):
            if option in TAKE_VALUES and value.startswith("-") and not NUMBER.fullmatch(value):
                raise pytest.UsageError(
                    f"{option}: is followed by {value}; a value that begins with a dash is "
                    f"written {option}=VALUE"
                )
    elif any(arg.partition("=")[0] in TAKE_VALUES for arg in given.args):
        # Printed with what pytest does not understand, and with nothing else.
        parser.extra_info["Assay"] = (
            "its options are known where its claims are run: assay check MODEL, or "
            "pytest --pyargs assay.claims --model=MODEL"
        )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    """Run pytest again if it has taken a value of Assay's options for a test path."""
    given = early_config.invocation_params
    if "PYTEST_XDIST_WORKER" in os.environ:
        return (yield)  # its claims are dealt by a run that has begun
    if (paths := of_package(given.args)) != list(given.args):
        raise SystemExit(int(pytest.main(paths, given.plugins)))
    # Options may come by the environment as well.
    added = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    if not about_a_clone(given.dir, given.args):
        return (yield)
    misled = misleads(given.args) or misleads(added)
    if misled:
        _refuse_foreign_settings(early_config)
    _refuse_models_among_code(early_config, [*added, *given.args])
    if misled:
        if added:
            os.environ["PYTEST_ADDOPTS"] = shlex.join(joined(added))
        # Found by way of the install, and perhaps another clone's: with the root known, pytest
        # finds them in this clone.
        for name in [name for name in sys.modules if name.partition(".")[0] == "assay"]:
            del sys.modules[name]
        raise SystemExit(int(pytest.main(joined(given.args), given.plugins)))
    # The libraries are about to be imported, which takes seconds, outside what pytest guards.
    main = threading.current_thread() is threading.main_thread()
    ended = signal.SIG_DFL
    if main and signal.getsignal(signal.SIGTERM) == ended:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return (yield)
    except KeyboardInterrupt:
        print("interrupted before any claim was run", file=sys.stderr)
        raise SystemExit(int(pytest.ExitCode.INTERRUPTED)) from None
    finally:
        if main and signal.getsignal(signal.SIGTERM) == signal.default_int_handler:
            signal.signal(signal.SIGTERM, ended)


def of_package(args: Sequence[str]) -> list[str]:
    """``args`` with paths in place of ``--pyargs assay.claims`` and of the modules in it.

    pytest looks for settings and plug-ins beside paths only, and there are the options declared.
    """
    if "--pyargs" not in args or not any(PACKAGED.match(arg) for arg in args):
        return list(args)
    claims = Path(__file__).parents[2] / "claims"
    found = []
    for arg in args:
        if (match := PACKAGED.match(arg)) is not None:
            module, rest = match.groups()
            arg = f"{claims / module}.py{rest}" if module else f"{claims}{rest}"
        if arg != "--pyargs":
            found.append(arg)
    return found


def _refuse_models_among_code(early_config: pytest.Config, args: Sequence[str]) -> None:
    directory = early_config.invocation_params.dir
    for arg in joined(args):
        option, _, model = arg.partition("=")
        if option == "--model" and (why := importable(model, directory)):
            raise pytest.UsageError(f"{model}: {why}")


def importable(model: str, directory: Path) -> str:
    """Why files in the folder ``model`` could be run as code; empty if they could not, or if there
    is no such folder.

    ``directory`` is where the run was begun.
    """
    folder = Path(os.path.realpath(directory / os.path.expanduser(model)))
    if not model.strip() or not os.path.isdir(folder):
        return ""
    # Editable installs leave names in it that are no paths.
    found = [directory / place for place in sys.path if os.path.exists(directory / place)]
    places = [Path(os.path.realpath(place)) for place in found]
    if any(place.is_relative_to(folder) for place in places):
        return (
            "Python looks for modules in it, and its files could be run; start `pytest`, not "
            "`python -m pytest`, in another folder, and look at PYTHONPATH"
        )
    if Path(os.path.realpath(directory)).is_relative_to(folder):
        return (
            "the run was begun in it, where workers, git and matplotlib would read its files; "
            "begin it in another folder"
        )
    if folder.parent in places and (folder / "__init__.py").exists():
        return "could be imported as a package, and its files be run; move it elsewhere"
    above = (folder, *folder.parents)
    if any(room.name in ROOMS and is_a_clone(room.parent) for room in above):
        return "lies where pytest looks for tests, and its files would be run; move it elsewhere"
    return ""


def _refuse_foreign_settings(early_config: pytest.Config) -> None:
    """Refuse to go on after another folder's configuration; one named by ``-c`` was asked for."""
    settings = early_config.inipath
    asked = early_config.known_args_namespace.inifilename
    if settings is not None and asked is None and not in_a_clone(settings.parent):
        raise pytest.UsageError(
            f"{settings}: pytest has taken this for its configuration, and may have run code that "
            "it names, as an option and its path stand apart; write --model=FOLDER, in one piece"
        )


def in_a_clone(folder: Path) -> bool:
    """Whether ``folder`` is a clone of Assay or lies in one."""
    return any(is_a_clone(above) for above in (folder, *folder.parents))


def is_a_clone(folder: Path) -> bool:
    """Whether ``folder`` is the top of a clone of Assay."""
    return (folder / "harness" / "plugin" / "early.py").is_file() and (folder / "claims").is_dir()


def about_a_clone(folder: Path, args: Sequence[str]) -> bool:
    """Whether the run is begun in a clone, or one of ``args`` is a path in one.

    Claims are run on another project's model by ``pytest path/to/assay/claims``.
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
    pairs = enumerate(_pairs(args))
    return [i for i, (arg, value) in pairs if arg in TAKE_VALUES and not value.startswith("-")]


def _pairs(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each argument with the next, up to ``--``."""
    return pairwise(args[: args.index("--") if "--" in args else len(args)])
