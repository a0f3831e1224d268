"""`assay versions`: claims on models, over versions of transformers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import InvalidVersion, Version
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.cli.arguments import (
    Parser,
    add_claims,
    add_environments,
    add_profile,
    add_seed,
    word,
)
from assay.harness.results import evidence_file
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Verdict
from assay.harness.runners import environments, runner
from assay.harness.runners.environments import CannotInstall, Environment
from assay.harness.runners.resumable import PACKAGE, Resumable
from assay.harness.runners.runner import FAILED, Outcome, Settings, Start

VERSIONS = (
    *("4.48", "4.51", "4.53", "4.57"),
    *("5.0", "5.5", "5.8", "5.12", "5.15", "5.18", "5.23", "5.24"),
)
"""The default versions; of each the latest release."""

Expand = Callable[[list[str]], list[str]]
"""(names and patterns) → names of models; raises `BadInput`."""


def main(
    arguments: Sequence[str],
    expand: Expand,
    prepare: Callable[[Path, Sequence[str]], Environment] = environments.prepare,
    start: Start = runner.process,
) -> int:
    """Run all versions, one after the other; 0 if every run finished, else 1."""
    words = list(arguments)
    cut = words.index("--") if "--" in words else len(words)
    options, pytest_arguments = _parser().parse_args(words[:cut]), words[cut + 1 :]
    requirements = [_requirement(each) for each in options.versions or VERSIONS]
    models = expand(options.models or ["tiny:*"])
    path = Path(options.evidence).absolute() if options.evidence else evidence_file.default_path()
    Evidence.open(path).close()  # an error here comes before anything is installed
    console = Console(highlight=False, emoji=False)
    claims = Resumable(path, models, Settings.of(options), pytest_arguments, sys.stdout, start)
    outcomes, folder = {}, Path(options.environments).absolute()  # runs are started in the clone
    for version, requirement in requirements:
        began, label = time.perf_counter(), version
        try:
            with console.status(f"{requirement}: installing"):
                environment = prepare(folder / f"{PACKAGE}-{version}", [requirement])
            label = environment.versions[PACKAGE]
            outcome = claims.run(environment, options.again)
        except CannotInstall as error:
            outcome = Outcome(FAILED, f"cannot be installed: {error}")
        except BadInput as error:
            outcome = Outcome(FAILED, str(error))
        outcomes[version] = label, replace(outcome, seconds=time.perf_counter() - began)
        console.print(line(*outcomes[version]), soft_wrap=True)
    console.print(table([*outcomes.values()]))
    console.print(f"evidence: {path}", soft_wrap=True, markup=False)
    return 1 if any(outcome.state == FAILED for _, outcome in outcomes.values()) else 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay versions",
        description="Run laws on tiny models over versions of transformers, one after the other, "
        "into one evidence file.  Every version is layered over what is installed here; torch "
        "stays.  Run again, the command resumes.  Arguments after -- go to pytest; what selects "
        "claims belongs before it.",
    )
    add = parser.add_argument
    add("versions", nargs="*", metavar="VERSION", help="such as 4.48 or 5.8.1 (default: twelve)")
    add(
        "--model",
        action="append",
        dest="models",
        type=word,
        help="as for claims; patterns match the types of the installed version "
        "(default: tiny:*); may be given several times",
    )
    add("--evidence", metavar="PATH", help="the evidence file (default: in the cache folder)")
    add_profile(parser)
    add_seed(parser)
    add_claims(parser, "as for claims")
    add("-k", dest="keyword", default="", metavar="EXPRESSION", help="pytest's own")
    add("-m", dest="marker", default="law", help="pytest's own (default: law)")
    for name in ("device", "dtype", "attention", "attends"):
        add(f"--{name}", help="as for claims")
    add_environments(parser)
    add(
        "--bisect",
        action="store_true",
        help="find where a claim's verdict changed (assay versions --bisect --help)",
    )
    add("--again", action="store_true", help="run finished versions again, too")
    return parser


def _requirement(text: str) -> tuple[str, str]:
    """The version as named, and pip's requirement: of X.Y its latest release."""
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise BadInput(f"{text!r}: is not a version such as 4.48 or 5.8.1") from error
    return text, f"{PACKAGE}=={text}" + (".*" if len(version.release) < 3 else "")


def line(version: str, outcome: Outcome) -> str:
    """The outcome of a version, as rich markup."""
    if outcome.why:
        return f"[red]✗[/] {PACKAGE} {version}: {escape(outcome.why)}"
    counts = ", ".join(
        f"{count} {verdict}" for verdict, count in outcome.verdicts.items() if count
    )
    notes = "".join(f"\n  [red]✗[/] {escape(note)}" for note in outcome.notes)
    return f"[green]✓[/] {PACKAGE} {version}: {counts} ({outcome.seconds:.0f} s){notes}"


def table(outcomes: Sequence[tuple[str, Outcome]]) -> Table:
    """A row for each version, a column for each verdict."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column(PACKAGE)
    for verdict in Verdict:
        grid.add_column(verdict.value, justify="right")
    for version, outcome in outcomes:
        grid.add_row(version, *(str(outcome.verdicts.get(v.value, "")) for v in Verdict))
    return grid
