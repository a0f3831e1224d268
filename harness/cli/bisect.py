"""`assay versions --bisect`: the first released version in which a verdict changed."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version
from rich.console import Console
from rich.markup import escape

from assay.harness.cli import models
from assay.harness.cli.arguments import Parser, add_profile, add_seed, seconds, word
from assay.harness.results.errors import BadInput
from assay.harness.results.seeds import LARGEST_SEED
from assay.harness.results.verdicts import Result, Verdict
from assay.harness.runners import environments, runner
from assay.harness.runners.bisection import Answer, Step, Untestable, bisect
from assay.harness.runners.environments import CannotInstall, Environment
from assay.harness.runners.resumable import PACKAGE
from assay.harness.runners.runner import Broke, Request, Settings

LIMIT = 600.0
MARKS = {Verdict.UPHELD: "[green]✓[/] upheld", Verdict.REFUTED: "[red]✗[/] refuted"}

Prepare = Callable[[Path, Sequence[str]], Environment]
Results = Callable[[Request, dict[str, str]], Sequence[Result]]
"""As `harness.runners.runner.results`."""

Check = Callable[[str, Sequence[str]], None]
"""Raises `BadInput` for an unknown model, or an unknown claim among these."""


def main(
    arguments: Sequence[str],
    check: Check,
    prepare: Prepare = environments.prepare,
    released: Callable[[str], list[Version]] = environments.released,
    results: Results = runner.results,
) -> int:
    """Bisect and print the answer; 0 if repeating it gave the same verdicts, else 1."""
    options = _parser().parse_args(arguments)
    check(options.model, [options.claim])
    console = Console(highlight=False, emoji=False)
    versions, good, bad = _between(options.good, options.bad, released)
    started = time.perf_counter()
    runs = 0

    def report(step: Step) -> None:
        nonlocal runs
        runs += 1
        console.print(line(step), soft_wrap=True)

    # On SIGTERM, it still removes its folder.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="assay-bisect-") as folder:
        probe = _probe(options, Path(folder), console, prepare, results)
        answer = bisect(versions, good, bad, probe, report)
    took = time.perf_counter() - started
    for text in sentences(options, answer):
        console.print(escape(text), soft_wrap=True)
    console.print(f"{runs} runs in {took:.0f} s", style="dim")
    return 1 if answer.doubts else 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay versions --bisect",
        description="Find the first released version of transformers in which a claim's verdict "
        "changed, between one where it is upheld and one where it is refuted.  Every version is "
        "layered over what is installed here, in a folder that is removed at the end; torch "
        "stays.  The exit code is 0, or 1 if a repeat of a deciding version differs.",
    )
    add = parser.add_argument
    add("--bisect", action="store_true", required=True, help="this command")
    add(
        "--claim",
        required=True,
        type=word,
        metavar="ID[:TEXT]",
        help="the claim with this number, such as C2, or its variants whose name contains TEXT",
    )
    add(
        "--good",
        required=True,
        type=word,
        metavar="VERSION",
        help="version in which the claim is upheld",
    )
    add(
        "--bad",
        required=True,
        type=word,
        metavar="VERSION",
        help="version in which the claim is refuted",
    )
    add_seed(parser)
    add_profile(parser)
    add("--limit", type=seconds, default=LIMIT, help="time limit of a run, in seconds")
    models.add_options(parser)
    return parser


def _between(
    good: str, bad: str, released: Callable[[str], list[Version]]
) -> tuple[list[str], str, str]:
    """The released versions from the one to the other, oldest first, and both by their names.

    Raises `BadInput`.
    """
    try:
        versions = released(PACKAGE)
    except CannotInstall as error:
        raise BadInput(f"the released versions of {PACKAGE} cannot be listed: {error}") from error
    ends = [_released(each, role, versions) for each, role in ((good, "good"), (bad, "bad"))]
    if ends[0] == ends[1]:
        raise BadInput(f"--good and --bad are both {ends[0]}; give two versions")
    return [str(v) for v in versions if min(ends) <= v <= max(ends)], str(ends[0]), str(ends[1])


def _released(text: str, role: str, versions: list[Version]) -> Version:
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise BadInput(f"--{role} {text!r}: is not a version such as 4.57.6") from error
    for each in versions:
        if each == version:
            return each
    near = [v for v in versions if v.release[:2] == version.release[:2]] or versions[-3:]
    listed = ", ".join(map(str, near))
    raise BadInput(
        f"--{role} {text}: no such release of {PACKAGE} can be installed here (pre-releases and "
        f"yanked ones are left out); there are {listed}"
    )


def _probe(
    options: argparse.Namespace, folder: Path, console: Console, prepare: Prepare, results: Results
) -> Callable[[str, int], Mapping[str, tuple[Verdict, str]]]:
    """Returns a function that runs the claim in a version; the second time with another seed."""
    broken: dict[str, str] = {}

    def probe(version: str, before: int) -> dict[str, tuple[Verdict, str]]:
        with console.status(f"{version}: installing"):
            try:
                environment = prepare(folder / version, [f"{PACKAGE}=={version}"])
            except CannotInstall as error:
                raise Untestable(f"cannot be installed: {error}") from error
        request = Request(
            python=environment.python,
            models=[options.model],
            settings=Settings.of(
                options,
                claims=[options.claim],
                seed=(options.seed + before) % (LARGEST_SEED + 1),
            ),
            pytest_arguments=["-o", "absent_ok=true", "-q"],
            patience=options.limit,
        )
        with console.status(f"{version}: {options.claim} on {escape(options.model)}"):
            try:
                outcomes = results(request, broken)
            except Broke as error:
                raise Untestable(str(error)) from error
        return {each.name: (each.verdict, " ".join(each.reason.split())) for each in outcomes}

    return probe


def line(step: Step) -> str:
    """One version and its verdict, as rich markup."""
    result = MARKS[step.verdict] if step.verdict is not None else "[yellow]–[/] cannot be tested"
    again = " again" if step.again else ""
    why = f"  [dim]{escape(step.why)}[/]" if step.why else ""
    return f"{step.version:<8} {result}{again}{why}"


def sentences(options: argparse.Namespace, answer: Answer) -> list[str]:
    """The answer in words."""
    first, last = answer.first, answer.last
    verdict = first.verdict.value if first.verdict is not None else ""
    since = f"{options.claim} on {options.model} is {verdict} since {PACKAGE} {first.version}"
    lines = [f"{since}; the last before it is {last.version}."]
    if answer.skipped:
        skipped = ", ".join(step.version for step in answer.skipped)
        lines = [
            f"{options.claim} on {options.model} changed between {PACKAGE} {last.version} and "
            f"{first.version}, where it is {verdict}; versions between that cannot be tested: "
            f"{skipped}."
        ]
    lines += [f"It is about: {name}" for name in answer.names]
    lines += [f"Doubtful: {doubt}." for doubt in answer.doubts]
    return lines
