"""What must hold for every input, however damaged, and what runs one case of it.

`trial` runs a case in this process, in a folder of its own, and says what it did; `wrong` says
what of that must not be.  A case that would begin another process, or hours of work, ends there:
it was accepted.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from assay.harness.cli.main import main
from assay.harness.tests.support.contained import SECONDS, Started, contained_in

LINES = 3
"""Lines of an error, at most."""

REFUSED = 4
EXITS = {"pytest": {0, 1, REFUSED, 5}, "harness": {0, 1, REFUSED}}
"""The exit codes of the README; the others are of a run that is interrupted or breaks."""

OUTPUTS = ("--evidence", "--html", "--json", "--junitxml", "--out", "--plots", "--record")
OUTPUTS += ("--repeat", "--report")
"""Options that name what a case may write, unless it is refused."""

OF_PYTEST = ("inifile:", "rootdir:", "ERROR: usage:", "(no match in any of")
"""What pytest adds to a line about an unknown option, or a path that it does not find."""

UNTIL_EXIT = "assay-offload-"
"""A folder that is kept as long as the process: models read from it."""

CASES = int(os.environ.get("FUZZ_CASES", "200"))
"""All cases of all tests together; `tox -e nightly` asks for more, and draws others."""


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


@dataclass
class Ended:
    """What a case did: its exit code (None where it would have gone on), and all it printed.

    ``changed`` and ``left`` are paths, seen from the case's folder: files that were there before
    and are otherwise or gone, and what was not there before.
    """

    exit: int | None
    output: str = ""
    errors: str = ""
    crash: str = ""
    changed: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)


def snapshot(folder: Path) -> dict[str, str]:
    """Everything under a folder: files by the digests of their content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "no file"
        for path in sorted(folder.rglob("*"))
    }


def trial(run: Callable[[], int], root: Path, seconds: float = SECONDS) -> Ended:
    """Run a case in ``root/work``; temporary files and caches would be in ``root``, too."""
    for name in ("work", "tmp", "cache"):
        (root / name).mkdir(exist_ok=True)
    before = snapshot(root)
    output, errors = io.StringIO(), io.StringIO()
    crash, code = "", None
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            with contained_in(root, seconds):
                code = run()
        except Started:
            code = None  # it was taken, or nothing would have been started
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(bool(error.code))
        except BaseException:
            crash = traceback.format_exc()
    after = snapshot(root)
    return Ended(
        code if code is None else int(code),
        output.getvalue(),
        errors.getvalue(),
        crash,
        {name for name in before if after.get(name) != before[name]},
        set(after) - set(before),
    )


def wrong(ended: Ended, program: str, arguments: Sequence[str]) -> list[str]:
    """What a case did that no input may bring about; empty if all is well."""
    complaints = []
    if ended.crash or any(
        word in text
        for text in (ended.output, ended.errors)
        for word in ("Traceback (most recent call last)", "INTERNALERROR")
    ):
        complaints.append(f"a traceback: {ended.crash or ended.output + ended.errors}")
    elif ended.exit is not None and ended.exit not in EXITS[program]:
        complaints.append(f"exit code {ended.exit}: {ended.errors}")
    late = [line for line in ended.output.splitlines() if line.startswith("ERROR: ")]
    lines = [
        line
        for line in [*ended.errors.splitlines(), *late]
        if line.strip() and not line.strip().startswith(OF_PYTEST)
    ]
    missing = [line for line in lines if line.startswith("ERROR: not found: ")]
    lines = [line for line in lines if line not in missing[1:]]  # pytest has a line for each
    if ended.exit == REFUSED and not 1 <= len(lines) <= LINES:
        complaints.append(f"{len(lines)} lines of error: {ended.errors}")
    allowed = _writable(program, arguments, ended.exit == REFUSED)
    complaints += [f"changed: {name}" for name in sorted(ended.changed) if not allowed(name)]
    unfinished = ended.exit is None  # would have gone on, and written there later
    complaints += [
        f"left behind: {name}"
        for name in sorted(ended.left)
        if not allowed(name) and not (unfinished and not name.startswith("tmp/"))
    ]
    return complaints


def _writable(program: str, arguments: Sequence[str], refused: bool) -> Callable[[str], bool]:
    """Whether a case with these ``arguments`` may write under a path."""
    named = set()
    for option, value in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, _, joined = option.partition("=")
        if name in OUTPUTS:
            named.add(joined or value)
    if program == "pytest" and refused:
        # The model may turn out to be bad after the evidence was opened; it loses no row.
        late = ("--evidence=", "--junitxml=")
        named &= {a.partition("=")[2] for a in arguments if a.startswith(late)}
    elif refused:
        named = set()
    elif arguments[:1] == ["merge"]:
        named |= set(arguments[1:])
    elif arguments[:1] == ["sweep"]:
        named |= {"swept.sqlite", "swept.sqlite.cells"}  # which the plan names
    elif arguments[:1] == ["defects"]:
        named |= {f"{a}/README.md" for a in arguments[1:]}
    paths = [os.path.normpath(os.path.join("work", name)) for name in named if name]
    paths += ["cache"]  # the evidence of a run that names none
    for argument in arguments:
        record, _, folder = argument.partition(":")
        if record == "--expectations=record":
            paths.append(f"work/{folder or 'claims/expectations'}")

    def allowed(name: str) -> bool:
        inside = any(name == path or name.startswith(f"{path}/") for path in paths)
        above = any(path.startswith(f"{name}/") for path in paths) and not refused
        return inside or above or name.startswith(f"tmp/{UNTIL_EXIT}")

    return allowed


SETTINGS = (
    *(
        "-p",
        "assay.harness.plugin.hooks",
        "-p",
        "assay.fixtures.subjects",
        "-p",
        "no:cacheprovider",
    ),
    *("-p", "no:faulthandler", "--capture=no", "--import-mode=importlib", "--tb=native"),
)
"""Of the runs of pytest: tracebacks as Python has them, no files of pytest's own."""


@dataclass
class Room:
    """An empty folder for a case: files are put into ``work``, and arguments name them there."""

    root: Path

    @property
    def work(self) -> Path:
        """Where the case runs."""
        return self.root / "work"

    def check(self, program: str, *arguments: str) -> Ended:
        """Run ``pytest`` or ``assay`` here; fails if it does what it must not."""
        __tracebackhide__ = True
        words = list(arguments)
        own = SETTINGS if program == "pytest" else ()
        run = {
            "pytest": lambda: pytest.main([*own, *words]),
            "harness": lambda: main(words),
        }
        ended = trial(run[program], self.root)
        assert not (complaints := wrong(ended, program, words)), "\n".join(
            [str(words), *complaints]
        )
        return ended
