"""Runs claims by pytest in a process of its own: with another Python, in another environment.

`run` runs a `Request` and returns an `Outcome`.  Whether a run finished is read from the exit
code and the evidence, never from pytest's output; a line of the output only explains a failure.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from assay.harness import __version__
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.records import RunRecord, Selection
from assay.harness.results.specs import ModelKind, ModelSpec
from assay.harness.results.verdicts import Result, Verdict

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "harness" / "package"
"""The folder of the package `assay` in a clone, so that a process runs this clone's code."""

UNWANTED = ("PYTHONPATH", "PYTHONHOME", "CI")
"""Variables that would bring other packages, or make every run draw the same examples."""

GRACE = 20.0
"""Seconds that an interrupted run has to exit."""

SETTLED = (0, 1, 5)
"""Exit codes of finished runs: claims as expected, not as expected, or none that applied."""

NOTHING_SELECTED = 5
"""Pytest's exit code if it has no test to run."""

HELD, BROKE, FAILED = "held", "broke", "failed"
"""States of a run: every claim as expected; not every claim; it did not finish."""


class Broke(Exception):
    """A run did not finish, and why, in one line."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Which claims are run and how, by the names of the options; None leaves the default.

    ``claims`` are those of ``--claim``, ``paths`` files or folders of claims within the clone,
    ``keyword`` and ``marker`` pytest's ``-k`` and ``-m``.
    """

    profile: str = "quick"
    seed: int = 0
    claims: Sequence[str] = ()
    paths: Sequence[str] = ()
    keyword: str = ""
    marker: str = ""
    device: str | None = None
    dtype: str | None = None
    attention: str | None = None
    attends: str | None = None
    revision: str | None = None
    device_map: str | None = None
    expectations: str | None = None
    trust_remote_code: bool = False

    @classmethod
    def of(cls, options: object, **changes: Any) -> Settings:
        """The settings among the parsed arguments of a command."""
        values = {name: getattr(options, name) for name in cls.names() if hasattr(options, name)}
        return cls(**{**values, **changes})

    @classmethod
    def names(cls) -> Sequence[str]:
        """The names of all settings."""
        return tuple(cls.__dataclass_fields__)

    def arguments(self) -> list[str]:
        """Pytest's arguments; values are joined to options, as pytest takes others for paths."""
        own = ("claims", "paths", "keyword", "marker", "trust_remote_code")
        values = {name: getattr(self, name) for name in self.names() if name not in own}
        return [
            *(str(ROOT / path) for path in self.paths),
            *("-m", self.marker, "-k", self.keyword),
            *(f"--claim={each}" for each in self.claims),
            *(f"--{k.replace('_', '-')}={v}" for k, v in values.items() if v is not None),
            *(["--trust-remote-code"] if self.trust_remote_code else []),
        ]

    def match(self, run: RunRecord, versions: Mapping[str, str]) -> bool:
        """Whether a run in the evidence had these settings and these package versions."""
        selection = run.selection
        device, _, placed = run.device.partition(", device map ")
        chosen = selection.numbers, selection.keyword, selection.marker
        paths, recorded = self.paths or ("claims",), selection.claims or ("claims",)
        return (
            run.suite == __version__
            and (run.profile, run.seed) == (self.profile, self.seed)
            and self._match_dtype(run, selection)
            and (run.attention, run.attends) == (self.attention, self.attends)
            and device.partition(" (")[0] == (self.device or "cpu")
            and placed.partition(" (")[0] == (self.device_map or "")
            and all(run.versions.get(name) == value for name, value in versions.items())
            and chosen == (sorted(self.claims), self.keyword, self.marker)
            and len(paths) == len(recorded)
            # Recorded relative to the root, which is not the clone's for claims from elsewhere.
            and all(f"/{a}".endswith(f"/{b}") for a, b in zip(paths, recorded, strict=True))
        )

    def _match_dtype(self, run: RunRecord, selection: Selection) -> bool:
        """Whether the run was in this dtype; by default a checkpoint's own, or float32."""
        if self.dtype not in (None, "auto"):
            return run.dtype == self.dtype
        outside = any(ModelSpec.recorded(n).kind is ModelKind.CHECKPOINT for n in run.subjects)
        return selection.dtype == "auto" or (run.dtype == "float32" and not outside)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One run of claims: with which Python, on which models, with which settings.

    Its results go to ``evidence``, by default a file that is removed afterwards.  It runs in the
    clone.  ``pytest_arguments`` are further arguments, ``variables`` further environment
    variables; the run is killed after ``patience`` seconds.  Pytest's output
    goes to ``show`` if that is set, else it is appended to the file ``log``; then the run is
    killed if this process dies.
    """

    python: Path
    models: Sequence[str]
    settings: Settings
    evidence: Path | None = None
    pytest_arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    patience: float | None = None
    show: IO[str] | None = None
    log: Path | None = None

    @property
    def command(self) -> list[str]:
        """The command line of the run."""
        # It runs in the clone, but relative paths start here.
        models = [os.path.abspath(m) if os.path.exists(m) else m for m in self.models]
        leash = [] if self.show else ["-p", "assay.harness.runners.leash"]
        return [
            *(str(self.python), "-m", "pytest", *leash, "-p", "no:cacheprovider"),
            *self.settings.arguments(),
            *(f"--model={model}" for model in models),
            *([] if self.evidence is None else [f"--evidence={self.evidence}"]),
            *self.pytest_arguments,
        ]

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its process."""
        inherited = {
            k: v for k, v in os.environ.items() if k not in UNWANTED and k[:6] != "PYTEST"
        }
        plain = {} if self.show else {"COLUMNS": "160", "NO_COLOR": "1"}
        return {**inherited, "PYTHONPATH": str(PACKAGE), **plain, **self.variables}


@dataclass(frozen=True)
class Outcome:
    """How a run ended: `HELD`, `BROKE` or `FAILED`; ``why`` says in one line why not `HELD`.

    ``code`` is the exit code, below 0 if a signal ended the process, None if it did not start or
    did not end in time.  ``verdicts`` counts the results by verdict, and ``notes`` are lines about
    models that were left out.
    """

    state: str
    why: str = ""
    code: int | None = None
    seconds: float = 0.0
    verdicts: Mapping[str, int] = field(default_factory=dict)
    results: Sequence[Result] = ()
    notes: Sequence[str] = ()


Start = Callable[[Request], int]
"""Runs the process of a request and returns its exit code; raises OSError if it cannot start."""


def process(request: Request) -> int:
    """Run the command; returns the exit code, below 0 if a signal ended it.

    Ctrl-C reaches both processes: a run whose output is shown has `GRACE` seconds to exit.
    """
    with (
        (request.log or Path(os.devnull)).open("ab") as log,
        subprocess.Popen(
            request.command,
            cwd=ROOT,
            env=request.environment,
            stdin=None if request.show else subprocess.PIPE,  # see `harness.runners.leash`
            stdout=request.show or log,
            stderr=None if request.show else subprocess.STDOUT,
        ) as started,
    ):
        try:
            return started.wait(request.patience)
        except BaseException as error:
            if request.show and isinstance(error, KeyboardInterrupt):
                with suppress(subprocess.TimeoutExpired):
                    started.wait(GRACE)
            started.kill()
            raise


def run(request: Request, start: Start = process) -> Outcome:
    """Run the request; errors of the run are in the outcome.

    Raises `BadInput` if the clone has no claims, or if the evidence cannot be read.
    """
    if not (ROOT / "claims").is_dir():
        raise BadInput("Assay's claims are not here; run this in a clone of Assay")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        request = replace(
            request,
            evidence=request.evidence or Path(scratch, "run.sqlite"),
            log=request.log or Path(scratch, "run.log"),
            variables={"HYPOTHESIS_STORAGE_DIRECTORY": scratch, **request.variables},
        )
        outcome = _run(request, start)
    return replace(outcome, seconds=time.monotonic() - began)


def _run(request: Request, start: Start) -> Outcome:
    assert request.evidence is not None
    assert request.log is not None
    before = {_end(each) for each in _ended(request.evidence)}
    try:
        code = start(request)
    except subprocess.TimeoutExpired:
        return Outcome(FAILED, f"did not end within {request.patience:g} s")
    except OSError as error:
        return Outcome(FAILED, f"its Python does not run ({error})")
    # A Python without pytest ends with 1, too.
    ended = [each for each in _ended(request.evidence) if _end(each) not in before]
    if code in SETTLED and ended:
        with Evidence.read(request.evidence) as evidence:
            return replace(outcome_of(evidence, ended[-1]), code=code)
    output = request.log.read_text("utf-8", errors="replace") if request.log.is_file() else ""
    return Outcome(FAILED, _why(code, complaint(output)), code)


def _ended(path: Path) -> list[RunRecord]:
    """The finished runs of an evidence file; none if there is no file."""
    if not path.is_file():
        return []
    with Evidence.read(path) as evidence:
        return [run for run in evidence.runs() if is_settled(run)]


def _end(run: RunRecord) -> tuple[str, str | None]:
    return run.id, run.finished


def is_settled(run: RunRecord) -> bool:
    """Whether a run in the evidence finished."""
    return run.finished is not None and run.exit in SETTLED


def outcome_of(evidence: Evidence, run: RunRecord) -> Outcome:
    """The outcome of a finished run in the evidence."""
    results = evidence.results(run.id)
    verdicts = Counter(result.verdict.value for result in results)
    state, why = (BROKE, "not as expected") if run.exit == 1 else (HELD, "")
    return Outcome(state, why, run.exit, verdicts=dict(verdicts), results=results)


def last_outcome(path: Path) -> Outcome | None:
    """The outcome of the last finished run of an evidence file, if there is one."""
    ended = _ended(path)
    if not ended:
        return None
    with Evidence.read(path) as evidence:
        return outcome_of(evidence, ended[-1])


def _why(code: int, message: str) -> str:
    if code == NOTHING_SELECTED:
        return "no claim was selected"
    if message:
        return f"{message} ({died(code)})" if code < 0 else message
    return f"its run did not finish ({died(code)})"


def died(code: int) -> str:
    """What an exit code says about a process that did not finish."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def complaint(output: str) -> str:
    """The line of pytest's output that explains a failure; empty if it printed nothing."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    # If a plug-in or a claim cannot be imported, pytest marks the reason by an E.
    errors = errors or [line[1:].strip() for line in lines if line.startswith("E  ")]
    return (errors or lines or [""])[-1]


def results(request: Request, broken: dict[str, str], start: Start = process) -> list[Result]:
    """The results of a request whose run finishes.

    ``broken`` stores one example of each refuted test, by the test's name and in the form
    that ``--replay`` takes.  A test that is upheld on the examples drawn here is run on that
    example as well, so that two versions differ by their behaviour and not by the draws.
    Raises `Broke`, and `BadInput` for an unknown claim.
    """
    outcomes = _results(request, start)
    for index, result in enumerate(outcomes):
        if result.verdict is Verdict.REFUTED and (blob := _blob(result)):
            broken.setdefault(result.name, blob)
        elif result.verdict is Verdict.UPHELD and result.name in broken:
            settings = replace(request.settings, claims=[f"{result.id}:{result.name}"])
            arguments = [*request.pytest_arguments, f"--replay={broken[result.name]}"]
            try:
                again = _results(
                    replace(request, settings=settings, pytest_arguments=arguments), start
                )
            except (Broke, BadInput):
                continue  # no example for this version's model, which draws other prompts
            outcomes[index] = next((r for r in again if r.verdict is Verdict.REFUTED), result)
    return outcomes


def _results(request: Request, start: Start) -> list[Result]:
    outcome = run(request, start)
    if outcome.state == FAILED:
        if outcome.why.startswith("--claim"):
            raise BadInput(outcome.why)
        raise Broke(outcome.why)
    return list(outcome.results)


def _blob(result: Result) -> str:
    """The counterexample in the form that ``--replay`` takes; empty if there is none."""
    words = shlex.split(result.counterexample.replay if result.counterexample else "")
    return next((w.removeprefix("--replay=") for w in words if w.startswith("--replay=")), "")
