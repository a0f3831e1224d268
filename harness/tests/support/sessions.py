"""Runs of pytest for tests of runs: each in a process of its own, on claims written for it.

Processes are forked from one that has the big libraries loaded (the standard library's
"forkserver"), so that a run costs a second and not ten.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from assay.harness.cli import main as command_line

ROOT = Path(__file__).parents[3]

PACKAGE = ROOT / "harness" / "package"
"""Where Python finds `assay` in this clone."""

PRELOAD = [
    "hypothesis",
    "jinja2",
    "matplotlib.figure",
    "pytest",
    "rich.console",
    "scipy.stats",
    "torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama",
    "assay.fixtures.subjects",
    "assay.harness.checking.laws",
    "assay.harness.models.capabilities.parts",
    "assay.harness.plugin.hooks",
]
"""What every run imports; the files of claims are left, whose assertions pytest rewrites."""

EMULATED: list[str] = []
"""Options of the tests' own run about another machine's rounding: those of every run in them."""

END = "\x1e"
"""Stands between the outputs of several runs in one process."""

PATIENCE = 300
"""Seconds after which a run counts as hanging."""

NOT_FOR_CHILDREN = ("PYTEST_", "CI", "COV_", "HYPOTHESIS_", "TOX_")
"""Variables of the environment that begin so would change what a run does.

Within tox, pytest would keep what failed in one folder for all runs.
"""

IMPORTS = """\
import os, signal, time
from pathlib import Path
import pytest
import torch
from hypothesis import strategies as st
from assay.fixtures.prompts import prompts
from assay.harness.results.errors import BadInput
from assay.harness.checking.laws import law

def ran(name):
    with (Path(__file__).parents[1] / "ran").open("a") as file:
        file.write(name + "\\n")

def a_law(id, says="a law", **more):
    return law(id, says, source="a test", control="twice what is allowed", **more)

"""
"""What every file of claims begins with."""


def law(
    number: int,
    observed: str = "0.5",
    *,
    decorator: str = "",
    body: str = "pass",
    slow: bool = False,
) -> str:
    """The text of the law ``X<number>``, which compares ``observed`` with 1."""
    lines = [
        decorator,
        f'@a_law("X{number}", "law {number}"{", slow=True" if slow else ""})',
        f"def test_law_{number}(subject, draw, check):",
        f'    ran("{number}")',
        f"    {body}",
        f"    check.judge({observed}, 1.0, 'here')",
        "    check.judge_control(2.0, 1.0)",
    ]
    return "\n".join(line for line in lines if line) + "\n\n"


@dataclass
class Session:
    """A run that has ended: its exit code and all that it printed."""

    exit: int
    output: str

    @property
    def errors(self) -> list[str]:
        """The lines that begin with ERROR."""
        return [line for line in self.output.splitlines() if line.startswith("ERROR")]

    def refused(self, *words: str) -> bool:
        """Whether this was bad input: one line that has these words, exit code 4, no traceback."""
        lines = self.errors
        explained = len(lines) == 1 and all(word in lines[0] for word in words)
        quiet = "Traceback" not in self.output and "INTERNALERROR" not in self.output
        return self.exit == 4 and explained and quiet


@dataclass
class Project:
    """A folder with claims of its own, and the runs on it."""

    folder: Path
    started: list[BaseProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Modules are loaded before pytest is: see PRELOAD.
        quiet = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
        self.write("pytest.ini", f"[pytest]\ntestpaths = claims\nfilterwarnings = {quiet}\n")
        self.write(
            "conftest.py",
            'pytest_plugins = ["assay.harness.plugin.hooks", "assay.fixtures.subjects"]\n',
        )

    def write(self, name: str, text: str) -> Path:
        """Write a file, by its path in the project.

        What replaces a file is a second newer at least: Python takes cached bytecode for current
        by the size of its source and the second in which that was written.
        """
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        newer = path.stat().st_mtime + 1 if path.exists() else 0
        path.write_text(dedent(text))
        if path.stat().st_mtime < newer:
            os.utime(path, (newer, newer))
        return path

    def claims(self, *laws: str, file: str = "test_toys") -> None:
        """Write a file of claims."""
        self.write(f"claims/{file}.py", IMPORTS + "".join(laws))

    def start(
        self, *arguments: str, folder: Path | None = None, **environment: str
    ) -> BaseProcess:
        """Begin a run in the project's folder, or another."""
        return self._fork([self._with_usual(arguments)], folder, environment)

    def ended(self, process: BaseProcess) -> Session:
        """Wait for a run to end."""
        process.join(PATIENCE)
        assert process.exitcode is not None, "the run hangs"
        return Session(process.exitcode, self.output.read_text(errors="replace"))

    def run(self, *arguments: str, folder: Path | None = None, **environment: str) -> Session:
        """A run from start to end."""
        return self.ended(self.start(*arguments, folder=folder, **environment))

    def runs(self, *commands: list[str]) -> list[Session]:
        """Several runs, one after another in one process: for those that end before any claim."""
        text = self.ended(self._fork([self._with_usual(c) for c in commands], None, {})).output
        parts = [part.rpartition("\n") for part in text.split(END)[:-1]]
        return [Session(int(code), output) for output, _, code in parts]

    @property
    def output(self) -> Path:
        """What the latest process printed."""
        return self.folder / "output"

    def _with_usual(self, arguments: Sequence[str]) -> list[str]:
        """A tiny model and the project's own evidence, unless others are named."""
        usual = {"--model": "tiny:gpt2", "--evidence": str(self.folder / "evidence.sqlite")}
        named = {argument.partition("=")[0] for argument in arguments}
        more = [f"{option}={value}" for option, value in usual.items() if option not in named]
        more += [option for option in EMULATED if option.partition("=")[0] not in named]
        return [*arguments, *more]

    def _fork(
        self, commands: list[list[str]], folder: Path | None, environment: dict[str, str]
    ) -> BaseProcess:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        where = str(folder or self.folder), str(self.output)
        arguments = (commands, *where, environment, "pytest", len(commands) > 1)
        process = context.Process(target=_main, args=arguments, daemon=True)
        process.start()
        self.started.append(process)
        return process

    def close(self) -> None:
        """End the runs that are still going."""
        for process in self.started:
            process.kill()
            process.join()

    @property
    def ran(self) -> list[str]:
        """Which laws' bodies were run, in order, each as often as it was."""
        path = self.folder / "ran"
        return path.read_text().split() if path.exists() else []

    def forget_ran(self) -> None:
        """Begin to count again from zero."""
        (self.folder / "ran").unlink(missing_ok=True)

    def wait_until(self, happened: Callable[[], Any]) -> None:
        """Wait for something that the started runs do."""
        end = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < end, "it never happens"
            time.sleep(0.02)

    def json(self, name: str = "out.json") -> dict[str, Any]:
        """The JSON report under this name."""
        return json.loads((self.folder / name).read_text())

    def verdicts(self, name: str = "out.json") -> dict[str, str]:
        """The verdicts in a JSON report by the claims' names."""
        return {claim["name"]: claim["verdict"] for claim in self.json(name)["claims"]}

    def files(self) -> set[str]:
        """All files of the project but caches, by their paths in it."""
        paths = (path.relative_to(self.folder) for path in self.folder.rglob("*"))
        hidden = ("__pycache__", ".pytest_cache", ".hypothesis", ".benchmarks")
        names = {str(path) for path in paths if not any(part in hidden for part in path.parts)}
        return names - {"output"}


def commands_in(
    folder: Path, *commands: list[str], program: str = "assay", **environment: str
) -> list[Session]:
    """Several commands of `assay`, or pytest, one after another in one process, in ``folder``."""
    output = folder.parent / f"{folder.name}.output"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    arguments = (list(commands), str(folder), str(output), environment, program, True)
    process = context.Process(target=_main, args=arguments, daemon=True)
    process.start()
    process.join(2 * PATIENCE)
    process.kill()
    text = output.read_text(errors="replace")
    parts = [part.rpartition("\n") for part in text.split(END)[:-1]]
    assert len(parts) == len(commands), text
    return [Session(int(code), output) for output, _, code in parts]


def _main(
    commands: list[list[str]],
    folder: str,
    output: str,
    environment: dict[str, str],
    program: str = "pytest",
    divided: bool = False,
) -> None:
    """All that ``python -m pytest``, or `assay`, would do, in a forked process."""
    gc.freeze()  # what is loaded already need not be looked through again
    os.chdir(folder)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith(NOT_FOR_CHILDREN)]:
        del os.environ[name]
    os.environ.update({"PYTHONPATH": str(PACKAGE), "COLUMNS": "160"} | environment)
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    for arguments in commands:
        sys.argv = [program, *arguments]
        code = pytest.main(arguments) if program == "pytest" else command_line.main(arguments)
        if divided:
            print(f"\n{int(code)}{END}", end="", flush=True)
    sys.exit(code)


def heeding_ctrl_c() -> None:
    """For a process about to begin: a shell has what it runs in the background ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def sweep_in(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Begin the sweep that ``sweep.toml`` in ``folder`` describes."""
    return subprocess.Popen(
        [sys.executable, "-m", "assay", "sweep", "sweep.toml", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heeding_ctrl_c,
    )
