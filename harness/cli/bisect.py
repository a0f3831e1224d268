"""`assay bisect`: the first released version in which a claim came out otherwise."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version
from rich.console import Console
from rich.markup import escape

from assay.harness.checking.profiles import PROFILES, check_profile
from assay.harness.cli import models
from assay.harness.cli.arguments import Parser, seconds, whole, word
from assay.harness.results.errors import BadInput
from assay.harness.results.seeds import LARGEST_SEED
from assay.harness.results.verdicts import Verdict
from assay.harness.runners import elsewhere, environments
from assay.harness.runners.bisection import Answer, Step, Untestable, bisect
from assay.harness.runners.elsewhere import Broke
from assay.harness.runners.environments import CannotInstall, Environment

PACKAGE = "transformers"
LIMIT = 600.0
MARKS = {Verdict.UPHELD: "[green]✓[/] upheld", Verdict.REFUTED: "[red]✗[/] refuted"}

Made = Callable[[Path, Sequence[str]], Environment]
Check = Callable[[str, Sequence[str]], None]
"""Raises `BadInput` where there is no such model, or where a claim of these is not there."""


def main(
    arguments: Sequence[str],
    check: Check,
    made: Made = environments.made,
    released: Callable[[str], list[Version]] = environments.released,
    results: Callable[..., Any] = elsewhere.results,
) -> int:
    """Bisect and tell; 0 if the answer stood when it was repeated, else 1."""
    asked = _parser().parse_args(arguments)
    check_profile(asked.profile)
    check(asked.model, [_claim(asked)])
    console = Console(stderr=asked.json, highlight=False, emoji=False)
    versions, good, bad = _between(asked.good, asked.bad, released)
    started = time.perf_counter()
    steps: list[Step] = []

    def tell(step: Step) -> None:
        steps.append(step)
        console.print(line(step), soft_wrap=True)

    # Ended from outside, it still removes what it made.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="assay-bisect-") as folder:
        probe = _probe(asked, Path(folder), console, made, results)
        answer = bisect(versions, good, bad, probe, tell)
    seconds = time.perf_counter() - started
    if asked.json:
        told = document(asked, answer, steps, seconds)
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        for text in sentences(asked, answer):
            console.print(escape(text), soft_wrap=True)
        console.print(f"{len(steps)} runs in {seconds:.0f} s", style="dim")
    return 1 if answer.doubts else 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay bisect",
        description="Find the first released version of transformers in which a claim came out "
        "otherwise, between one where it is upheld and one where it is refuted.  Every version is "
        "laid over what is installed here, in a folder that is removed at the end; torch stays.  "
        "The exit code is 0, or 1 if a deciding version came out otherwise when repeated.",
    )
    add = parser.add_argument
    add("--claim", required=True, type=word, metavar="ID", help="the claim's number, such as C2")
    add("--variant", default="", metavar="TEXT", help="only its tests whose name holds TEXT")
    add("--good", required=True, type=word, metavar="VERSION", help="where it is upheld")
    add("--bad", required=True, type=word, metavar="VERSION", help="where it is refuted")
    add("--seed", type=whole(0, LARGEST_SEED), default=0, help="of every draw (default: 0)")
    add("--profile", default="quick", help=f"how much to try: {', '.join(PROFILES)}")
    add("--limit", type=seconds, default=LIMIT, help="seconds until a run is given up")
    add("--json", action="store_true", help="print JSON, and the steps to standard error")
    models.add_options(parser)
    return parser


def _between(
    good: str, bad: str, released: Callable[[str], list[Version]]
) -> tuple[list[str], str, str]:
    """The released versions from the one to the other, oldest first, and both as they are named.

    Raises `BadInput`.
    """
    try:
        known = released(PACKAGE)
    except CannotInstall as error:
        raise BadInput(f"the released versions of {PACKAGE} cannot be had: {error}") from error
    ends = [_released(each, role, known) for each, role in ((good, "good"), (bad, "bad"))]
    if ends[0] == ends[1]:
        raise BadInput(f"--good and --bad are both {ends[0]}; give two versions")
    return [str(v) for v in known if min(ends) <= v <= max(ends)], str(ends[0]), str(ends[1])


def _released(text: str, role: str, known: list[Version]) -> Version:
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise BadInput(f"--{role} {text!r}: is no version such as 4.57.6") from error
    for each in known:
        if each == version:
            return each
    near = [v for v in known if v.release[:2] == version.release[:2]] or known[-3:]
    listed = ", ".join(map(str, near))
    raise BadInput(
        f"--{role} {text}: no such release of {PACKAGE} can be had here (pre-releases and yanked "
        f"ones are left out); there are {listed}"
    )


def _probe(
    asked: Any, folder: Path, console: Console, made: Made, results: Callable[..., Any]
) -> Callable[[str, int], Mapping[str, tuple[Verdict, str]]]:
    """What runs the claim in a version; the second time with another seed."""
    broken: dict[str, str] = {}

    def probe(version: str, before: int) -> dict[str, tuple[Verdict, str]]:
        with console.status(f"{version}: installing"):
            try:
                environment = made(folder / version, [f"{PACKAGE}=={version}"])
            except CannotInstall as error:
                raise Untestable(f"cannot be installed: {error}") from error
        with console.status(f"{version}: {asked.claim} on {escape(asked.model)}"):
            try:
                found = results(environment, _pytest(asked, before), broken, asked.limit)
            except Broke as error:
                raise Untestable(str(error)) from error
        return {result.name: (result.verdict, _why(result)) for result in found}

    return probe


def _claim(asked: Any) -> str:
    return f"{asked.claim}:{asked.variant}" if asked.variant else asked.claim


def _pytest(asked: Any, before: int) -> list[str]:
    """Pytest's arguments; every value in one piece, so that none is taken for a test's path."""
    model = os.path.abspath(asked.model) if os.path.exists(asked.model) else asked.model
    given = {
        "claim": _claim(asked),
        "model": model,
        "seed": (asked.seed + before) % (LARGEST_SEED + 1),
        "profile": asked.profile,
        "device": asked.device,
        "dtype": asked.dtype,
        "attention": asked.attention,
        "attends": asked.attends,
        "revision": asked.revision,
    }
    flags = ["--trust-remote-code"] if asked.trust_remote_code else []
    values = [f"--{name}={value}" for name, value in given.items() if value is not None]
    return [*values, *flags, "--absent-ok", "-q"]


def _why(result: Any) -> str:
    """What was seen where a claim is refuted, or why it is not decided."""
    return " ".join(result.reason.split())


def line(step: Step) -> str:
    """One version and what came of it, as rich markup."""
    told = MARKS[step.verdict] if step.verdict is not None else "[yellow]–[/] cannot be tested"
    again = " again" if step.again else ""
    why = f"  [dim]{escape(step.why)}[/]" if step.why else ""
    return f"{step.version:<8} {told}{again}{why}"


def sentences(asked: Any, answer: Answer) -> list[str]:
    """The answer in words."""
    first, last = answer.first, answer.last
    verdict = first.verdict.value if first.verdict is not None else ""
    since = f"{asked.claim} on {asked.model} is {verdict} since {PACKAGE} {first.version}"
    said = [f"{since}; the last before it is {last.version}."]
    if answer.skipped:
        skipped = ", ".join(step.version for step in answer.skipped)
        said = [
            f"{asked.claim} on {asked.model} changed between {PACKAGE} {last.version} and "
            f"{first.version}, where it is {verdict}; versions between that cannot be tested: "
            f"{skipped}."
        ]
    said += [f"It is about: {name}" for name in answer.names]
    said += [f"Doubtful: {doubt}." for doubt in answer.doubts]
    return said


def document(asked: Any, answer: Answer, steps: Sequence[Step], seconds: float) -> dict[str, Any]:
    """The answer as plain JSON; ``first`` is the version that was looked for."""
    return {
        "package": PACKAGE,
        "claim": asked.claim,
        "variant": asked.variant,
        "model": asked.model,
        "seed": asked.seed,
        "last": answer.last.version,
        "first": answer.first.version,
        "verdict": str(answer.first.verdict),
        "names": answer.names,
        "skipped": [step.version for step in answer.skipped],
        "doubts": answer.doubts,
        "steps": [
            {
                "version": step.version,
                "verdict": None if step.verdict is None else step.verdict.value,
                "why": step.why,
                "again": step.again,
            }
            for step in steps
        ],
        "seconds": round(seconds, 1),
    }
