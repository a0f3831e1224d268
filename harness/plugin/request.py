"""The request of a run: made once from pytest's options, and read by the whole plug-in."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from assay.harness.checking.outside import Outside
from assay.harness.models.loading.runs import Options
from assay.harness.models.machine.devices import dtype_name, parse_dtype
from assay.harness.models.subject.lengths import ALL
from assay.harness.plugin import toy
from assay.harness.results.specs import ModelSpec

Expand = Callable[[Sequence[str]], tuple[list[str], list[str]]]
"""Returns the models of names and patterns: all of them, and those that only patterns name."""

EXPAND = pytest.StashKey[Expand]()
"""Set by the plug-in that builds models, before the options are read."""

DEFAULT = "reference"
"""The default model."""

USUAL = Options()
"""How models are loaded by default."""


@dataclass(frozen=True)
class RunRequest:
    """The options of a run, checked; paths are absolute.

    ``outside`` are the modules of ``--claims``.

    ``named`` are the models as ``--model`` names them, patterns as such; ``models`` those that
    claims run on, each once.  A model among ``optional`` may be missing here; its claims then do
    not apply.  ``report`` is the page of ``--report`` and ``summary`` its Markdown.  ``worker`` is
    the worker's id in a worker process of pytest-xdist, and empty in the process that owns the
    terminal.  ``root`` is pytest's root folder; the run was started in ``directory``.
    """

    named: tuple[str, ...] = ()
    models: tuple[str, ...] = (DEFAULT,)
    optional: frozenset[str] = frozenset()
    loading: Options = USUAL
    profile: str = "quick"
    seed: int = 0
    replay: str | None = None
    rounding: int | None = None
    allocation: str | None = None
    claims: tuple[str, ...] = ()
    outside: tuple[Outside, ...] = ()
    evidence: Path | None = None
    json: Path | None = None
    report: Path | None = None
    summary: Path | None = None
    expectations: Path = Path("claims", "expectations")
    resume: bool = False
    explain: bool = False
    budget: float | None = None
    record_expectations: bool = False
    worker: str = ""
    root: Path = Path()
    directory: Path = Path()

    @classmethod
    def of(cls, config: pytest.Config) -> RunRequest:
        """The request of the run with this ``config``."""
        return config.stash[REQUEST]

    @property
    def subjects(self) -> list[str]:
        """All subjects of claims: the models, and the toys."""
        return list(dict.fromkeys([*self.models, toy.spec_for(self.models)]))

    @property
    def emulated(self) -> dict[str, int | str | None]:
        """Which properties of another machine are emulated; None where nothing is."""
        return {"rounding": self.rounding, "allocation": self.allocation}

    @property
    def emulations(self) -> list[str]:
        """The options that emulate them again."""
        machines = self.emulated.items()
        return [f"--emulate={name}:{value}" for name, value in machines if value is not None]

    def replay_command(
        self, nodeid: str, subject: str, blob: str, whole: bool = False, claim: str = ""
    ) -> str:
        """One line for a shell, where this run was started, that runs one example of a test.

        ``whole`` says that it is an example of the whole of a large model.  A test of ``--claims``
        is named by its ``claim``, ID or ID:NAME.
        """
        file, separator, test = nodeid.partition("::")
        file = os.path.relpath(self.root / file, self.directory)
        parts = ["pytest", f"{file}{separator}{test}", f"--model={subject}"]
        if claim:
            parts = ["assay", "check", subject, f"--claim={claim}"]
        if claim or ModelSpec.recorded(subject).fault is not None:  # which may be from there
            parts += dict.fromkeys(f"--claims={each.name}" for each in self.outside)
        loading = replace(self.loading, layers=ALL) if whole else self.loading
        for name in LOADING:
            if (value := getattr(loading, name)) != getattr(USUAL, name):
                parts.append(f"--{name.replace('_', '-')}={value}")
        parts += self.emulations
        if self.loading.trust_remote_code:
            parts.append("--trust-remote-code")
        if self.loading.bitwise:
            parts += ["-o", "bitwise=true"]
        if self.loading.oracle != USUAL.oracle:
            parts += ["-o", f"oracle={self.loading.oracle}"]
        return shlex.join([*parts, f"--replay={blob}"])


LOADING = (
    *("device", "device_map", "dtype", "attention", "attends", "revision", "base", "layers"),
    "against",
)
"""The options of `Options` that a replay repeats, where they are not the usual ones."""

DTYPES = pytest.StashKey[list[str]]()
"""The dtypes of the models, by name; set once they have been checked."""


def dtypes(config: pytest.Config) -> list[str]:
    """The dtypes in which the models of this run compute, each once."""
    names: list[str] = config.stash.get(DTYPES, [])
    usual = dtype_name(parse_dtype(RunRequest.of(config).loading.dtype))
    return list(dict.fromkeys(names)) or [usual]


REQUEST = pytest.StashKey[RunRequest]()
