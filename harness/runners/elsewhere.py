"""Runs of claims in another environment: pytest there, on this clone's claims."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Result, Verdict
from assay.harness.runners.environments import Environment

ROOT = Path(__file__).parents[2]

UNWANTED = ("PYTHONPATH", "PYTHONHOME", "PYTEST_ADDOPTS", "CI")
"""Variables that would bring other packages or options, or have every run draw the same."""

GRACE = 20.0
"""Seconds that an interrupted run has to end."""

SETTLED = (0, 1)
"""Exit codes of runs that came to their end."""


class Broke(Exception):
    """A run elsewhere did not come to its end, and why, in one line."""


def command(environment: Environment, arguments: Sequence[str]) -> list[str]:
    """What runs claims in ``environment``; raises `BadInput` where there are none."""
    if not (ROOT / "claims").is_dir():
        raise BadInput("Assay's claims are not here; run this in a clone of Assay")
    return [str(environment.python), "-m", "pytest", "-p", "no:cacheprovider", *arguments]


def variables(**more: str) -> dict[str, str]:
    """The variables of such a run."""
    kept = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    return kept | more


def results(
    environment: Environment,
    arguments: Sequence[str],
    broken: dict[str, str],
    patience: float,
    setting: Mapping[str, str] | None = None,
) -> list[Result]:
    """What came of a run of claims with pytest's ``arguments``, given up after some seconds.

    ``setting`` are variables of the process beside its usual ones.

    ``broken`` keeps one example of each test that was refuted, by the test's name and in the form
    that ``--replay`` takes.  What holds on the examples drawn here is tried on that one as well,
    so that two versions differ by what they do and not by what was drawn.  Raises `Broke`, and
    `BadInput` for a claim that is not there.
    """
    found = _once(environment, arguments, patience, setting)
    for place, result in enumerate(found):
        if result.verdict is Verdict.REFUTED and (blob := _blob(result)):
            broken.setdefault(result.name, blob)
        elif result.verdict is Verdict.UPHELD and result.name in broken:
            others = [each for each in arguments if not each.startswith("--claim=")]
            one = f"--claim={result.id}:{result.name}"
            try:
                replayed = [*others, one, f"--replay={broken[result.name]}"]
                again = _once(environment, replayed, patience, setting)
            except (Broke, BadInput):
                continue  # it is no example here: other prompts are drawn for this version's model
            found[place] = next((r for r in again if r.verdict is Verdict.REFUTED), result)
    return found


def _once(
    environment: Environment,
    arguments: Sequence[str],
    patience: float,
    setting: Mapping[str, str] | None,
) -> list[Result]:
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(scratch, "run.json")
        # In one piece, or pytest could take a path for a test's.
        kept = [f"--json={written}", f"--evidence={Path(scratch, 'run.sqlite')}"]
        try:
            done = subprocess.run(
                command(environment, [*arguments, *kept]),
                cwd=ROOT,
                env=variables(**(setting or {}), HYPOTHESIS_STORAGE_DIRECTORY=scratch),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=patience,
            )
        except subprocess.TimeoutExpired as error:
            raise Broke(f"did not end within {patience:g} s") from error
        if done.returncode not in SETTLED or not written.is_file():
            why = _complaint(done.returncode, done.stdout, done.stderr)
            if why.startswith("--claim"):
                raise BadInput(why)
            raise Broke(why)
        return [Result.from_json(row) for row in json.loads(written.read_text())["claims"]]


def _blob(result: Result) -> str:
    """The counterexample as ``--replay`` takes it; empty where there is none."""
    command = shlex.split((result.counterexample or {}).get("replay") or "")
    given = [each.removeprefix("--replay=") for each in command if each.startswith("--replay=")]
    return given[0] if given else ""


def stream(command: Sequence[str], output: IO[str] | None = None) -> int:
    """Run ``command`` in the clone, with its output in ``output`` or here; its exit code.

    Ctrl-C reaches both processes: the other has some seconds to put its evidence in order.
    """
    with subprocess.Popen(command, cwd=ROOT, env=variables(), stdout=output) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def died(code: int) -> str:
    """What an exit code says of a process that did not come to its end."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _complaint(code: int, *said: str) -> str:
    lines = [line.strip() for text in said for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    # Where a plug-in or a claim cannot be imported, pytest marks the reason by an E.
    errors = errors or [line[1:].strip() for line in lines if line.startswith("E  ")]
    last = (errors or lines or [""])[-1]
    return f"{last} ({died(code)})" if code < 0 or not last else last
