"""`assay flips`: verdicts that changed between neighbouring versions, repeated on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.cli.arguments import Parser, add_environments, add_profile, add_seed, file
from assay.harness.comparison.changes import Repetition, VerdictChange
from assay.harness.report import texts
from assay.harness.report.atlas.collect import Collected, collect
from assay.harness.report.atlas.flips import flips, turns
from assay.harness.results.evidence import Evidence
from assay.harness.runners import environments, runner
from assay.harness.runners.environments import Environment
from assay.harness.runners.repeats import Repeat, repeat, repeats, unrepeated
from assay.harness.runners.resumable import PACKAGE
from assay.harness.runners.runner import Start

Obtain = Callable[[Path, str, str], Environment]
"""(folder, package, version) → an environment with it; raises like `environments.obtain`."""

MOST_NAMED = 6
"""How many models are named in a line; the rest is counted."""


def main(
    arguments: Sequence[str], obtain: Obtain = environments.obtain, start: Start = runner.process
) -> int:
    """List the changes, and repeat them on request; 1 if a repeat did not finish."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=options.json, highlight=False, emoji=False)
    paths, broke = list(options.evidence), 0
    if options.repeat is not None:
        Evidence.open(options.repeat).close()  # an error here comes before the first run
        paths += [options.repeat] * (options.repeat not in paths)
        before = collect(paths)
        todo = repeats(unrepeated(flips(before), before, options.profile, options.seed), before)
        prepare = partial(obtain, Path(options.environments).absolute(), PACKAGE)
        path, show = options.repeat.absolute(), sys.stderr if options.json else sys.stdout
        outcomes = repeat(todo, path, options.profile, options.seed, prepare, show, start)
        for done, (each, outcome) in enumerate(outcomes, start=1):
            why = "; ".join(filter(None, [*outcome.notes, outcome.why]))
            broke += bool(why)
            console.print(_line(f"{done}/{len(todo)}", each, why), soft_wrap=True)
    collected = collect(paths)
    every = flips(collected)
    if options.json:
        sys.stdout.write(json.dumps(document(every, collected), indent=2) + "\n")
    else:
        if every:
            console.print(table(every, collected))
        console.print(total(every))
    return 1 if broke else 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay flips",
        description="List the claims that are upheld in one version of transformers and refuted "
        "in the next, or the other way round.  --repeat runs each of them once more in both "
        "versions, with another seed: what does not come out again is noise of the search, and "
        "the atlas leaves it out.  Run again, the command resumes.",
    )
    add = parser.add_argument
    add(
        "evidence", nargs="+", type=file, metavar="EVIDENCE", help="evidence with several versions"
    )
    add("--repeat", type=file, metavar="FILE", help="repeat the changes, into this evidence file")
    add_profile(parser)
    add_seed(parser, 1)
    add("--json", action="store_true", help="print JSON, and the steps to standard error")
    add_environments(parser)
    return parser


def _line(count: str, each: Repeat, why: str) -> str:
    checks = f"{texts.counted(len(each.claims), 'claim')} on {_named(each.subjects)}"
    mark, reason = ("[red]✗[/]", f": {escape(why)}") if why else ("[green]✓[/]", "")
    return f"{mark} {count} {PACKAGE} {each.where[0]}, {escape(checks)}{reason}"


def _named(subjects: Sequence[str]) -> str:
    rest = len(subjects) - MOST_NAMED
    return ", ".join(subjects[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def table(every: Sequence[VerdictChange], collected: Collected) -> Table:
    """A row for each claim and pair of versions, those on the most models first."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("from", "to", "now", "claim", "on", "repeated"):
        grid.add_column(name, overflow="fold")
    for turn in turns(every):
        cell = collected.cells[turn.setting, turn.subjects[0], turn.name, turn.after]
        cells = (
            *(turn.before, turn.after, turn.verdict.value, f"{cell.result.id} {turn.name}"),
            *(_named(turn.subjects), turn.repeated),
        )
        grid.add_row(*(escape(texts.visible(text)) for text in cells))
    return grid


def total(every: Sequence[VerdictChange]) -> str:
    """The number of changes, by whether repeats show them again."""
    counts = ", ".join(
        f"{count} {outcome}"
        for outcome in Repetition
        if (count := sum(f.repetition is outcome for f in every))
    )
    return texts.counted(len(every), "flip") + (f": {counts}" if counts else "")


def document(every: Sequence[VerdictChange], collected: Collected) -> list[dict[str, Any]]:
    """The changes as plain JSON."""
    return [
        {
            "claim": collected.cells[flip.setting, flip.subject, flip.name, flip.after].result.id,
            "name": flip.name,
            "subject": flip.subject,
            "setting": flip.setting,
            "before": flip.before,
            "after": flip.after,
            "verdict": flip.verdict.value,
            "seen": flip.repetition.value,
        }
        for flip in every
    ]
