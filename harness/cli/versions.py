"""`assay versions`: claims on models, over versions of transformers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.checking.profiles import PROFILES, check_profile
from assay.harness.cli.arguments import Parser, add_claims, whole, word
from assay.harness.cli.matrix import PACKAGE, Matrix, Row, Settings
from assay.harness.results import evidence_file
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.seeds import LARGEST_SEED
from assay.harness.results.verdicts import Verdict
from assay.harness.runners import elsewhere, environments
from assay.harness.runners.environments import CannotInstall, Environment

VERSIONS = (
    *("4.48", "4.51", "4.53", "4.57"),
    *("5.0", "5.5", "5.8", "5.12", "5.15", "5.18", "5.23"),
)
"""Those that are run unless others are named; of each the latest release."""

Expand = Callable[[list[str]], list[str]]
"""Models by name, in place of names and patterns; raises `BadInput`."""


def main(
    arguments: Sequence[str],
    expand: Expand,
    made: Callable[[Path, Sequence[str]], Environment] = environments.made,
    run: Callable[[list[str]], int] | None = None,
) -> int:
    """Run all versions, one after the other; 0 if each was run to its end, else 1."""
    asked, more = _arguments(arguments)
    wanted = [_requirement(each) for each in asked.versions or VERSIONS]
    specs = expand(asked.models or ["tiny:*"])
    path = Path(asked.evidence).absolute() if asked.evidence else evidence_file.default_path()
    Evidence.open(path).close()  # what cannot be written to is known before anything is installed
    console = Console(highlight=False, emoji=False)
    settings = Settings(**{each.name: getattr(asked, each.name) for each in fields(Settings)})
    matrix = Matrix(path, specs, settings, more, run or elsewhere.stream)
    rows, folder = [], Path(asked.environments).absolute()  # runs are begun in the clone
    for version, requirement in wanted:
        rows.append(_row(version, requirement, folder, matrix, made, console))
        console.print(line(rows[-1]), soft_wrap=True)
    console.print(table(rows))
    console.print(f"evidence: {path}", soft_wrap=True, markup=False)
    return 1 if any(row.why or row.notes for row in rows) else 0


def _arguments(arguments: Sequence[str]) -> tuple[Any, list[str]]:
    """The options of this command, and after ``--`` those of pytest."""
    given = list(arguments)
    cut = given.index("--") if "--" in given else len(given)
    asked = _parser().parse_args(given[:cut])
    check_profile(asked.profile)
    return asked, given[cut + 1 :]


def _parser() -> Parser:
    parser = Parser(
        prog="assay versions",
        description="Run laws on tiny models over versions of transformers, one after the other, "
        "into one evidence file.  Every version is laid over what is installed here; torch stays. "
        "Given again, the command goes on where it stopped.  What stands after -- goes to pytest; "
        "what narrows the claims belongs before it.",
    )
    add = parser.add_argument
    add("versions", nargs="*", metavar="VERSION", help="such as 4.48 or 5.8.1 (default: eleven)")
    add(
        "--model",
        action="append",
        dest="models",
        type=word,
        help="as for claims; patterns stand for the types of the version that is installed here "
        "(default: tiny:*); may be given several times",
    )
    add("--evidence", metavar="PATH", help="the evidence file (default: in the cache folder)")
    add("--profile", default="quick", help=f"how much to try: {', '.join(PROFILES)}")
    add("--seed", type=whole(0, LARGEST_SEED), default=0, help="of every draw (default: 0)")
    add_claims(parser, "as for claims")
    add("-k", dest="keyword", default="", metavar="EXPRESSION", help="pytest's own")
    add("-m", dest="marker", default="law", help="pytest's own (default: law)")
    for name in ("device", "dtype", "attention", "attends"):
        add(f"--{name}", help="as for claims")
    add(
        "--environments",
        metavar="FOLDER",
        default=str(evidence_file.default_path().parent / "environments"),
        help="where the versions are kept (default: in the cache folder)",
    )
    add("--again", action="store_true", help="run versions that have been run to their end, too")
    return parser


def _requirement(text: str) -> tuple[str, str]:
    """The version as it was named, and what pip is asked for: of X.Y its latest release."""
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise BadInput(f"{text!r}: is no version such as 4.48 or 5.8.1") from error
    return text, f"{PACKAGE}=={text}" + (".*" if len(version.release) < 3 else "")


def _row(
    version: str,
    requirement: str,
    folder: Path,
    matrix: Matrix,
    made: Callable[[Path, Sequence[str]], Environment],
    console: Console,
) -> Row:
    row, started = Row(version), time.perf_counter()
    try:
        with console.status(f"{requirement}: installing"):
            environment = made(folder / f"{PACKAGE}-{version}", [requirement])
        row.version = environment.versions[PACKAGE]
        matrix.fill(row, environment)
    except CannotInstall as error:
        row.why = f"cannot be installed: {error}"
    except BadInput as error:
        row.why = str(error)
    row.seconds = time.perf_counter() - started
    return row


def line(row: Row) -> str:
    """What came of a version, as rich markup."""
    if row.why:
        return f"[red]✗[/] {PACKAGE} {row.version}: {escape(row.why)}"
    told = ", ".join(f"{count} {verdict}" for verdict, count in row.counts.items() if count)
    notes = "".join(f"\n  [red]✗[/] {escape(note)}" for note in row.notes)
    return f"[green]✓[/] {PACKAGE} {row.version}: {told} ({row.seconds:.0f} s){notes}"


def table(rows: Sequence[Row]) -> Table:
    """Versions down, verdicts across."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column(PACKAGE)
    for verdict in Verdict:
        shown.add_column(verdict.value, justify="right")
    for row in rows:
        counts = [str(row.counts.get(verdict.value, "")) for verdict in Verdict]
        shown.add_row(row.version, *counts)
    return shown
