"""`assay flips`: verdicts that changed between neighbouring versions, repeated if asked for."""

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
from assay.harness.comparison.changes import Seen, VerdictChange
from assay.harness.report import texts
from assay.harness.report.atlas.collect import Collected, collect
from assay.harness.report.atlas.flips import flips, turns
from assay.harness.results.evidence import Evidence
from assay.harness.runners import environments, runner
from assay.harness.runners.environments import Environment
from assay.harness.runners.repeats import Repeat, repeat, repeats, unrepeated
from assay.harness.runners.resumable import PACKAGE
from assay.harness.runners.runner import Start

Having = Callable[[Path, str, str], Environment]
"""(folder, package, version) → an environment with it; raises as `environments.having`."""

MOST_NAMED = 6
"""So many models are named in a line; the rest is counted."""


def main(
    arguments: Sequence[str], having: Having = environments.having, start: Start = runner.process
) -> int:
    """List the changes, and repeat them if asked to; 1 if a repeat did not finish."""
    asked = _parser().parse_args(arguments)
    console = Console(stderr=asked.json, highlight=False, emoji=False)
    paths, broke = list(asked.evidence), 0
    if asked.repeat is not None:
        Evidence.open(asked.repeat).close()  # what cannot be written to is known beforehand
        paths += [asked.repeat] * (asked.repeat not in paths)
        known = collect(paths)
        todo = repeats(unrepeated(flips(known), known, asked.profile, asked.seed), known)
        had = partial(having, Path(asked.environments).absolute(), PACKAGE)
        path, show = asked.repeat.absolute(), sys.stderr if asked.json else sys.stdout
        outcomes = repeat(todo, path, asked.profile, asked.seed, had, show, start)
        for done, (each, outcome) in enumerate(outcomes, start=1):
            why = "; ".join(filter(None, [*outcome.notes, outcome.why]))
            broke += bool(why)
            console.print(_line(f"{done}/{len(todo)}", each, why), soft_wrap=True)
    found = collect(paths)
    every = flips(found)
    if asked.json:
        sys.stdout.write(json.dumps(document(every, found), indent=2) + "\n")
    else:
        if every:
            console.print(table(every, found))
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


def _line(place: str, each: Repeat, why: str) -> str:
    checks = f"{texts.counted(len(each.claims), 'claim')} on {_named(each.subjects)}"
    mark, more = ("[red]✗[/]", f": {escape(why)}") if why else ("[green]✓[/]", "")
    return f"{mark} {place} {PACKAGE} {each.where[0]}, {escape(checks)}{more}"


def _named(subjects: Sequence[str]) -> str:
    rest = len(subjects) - MOST_NAMED
    return ", ".join(subjects[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def table(every: Sequence[VerdictChange], found: Collected) -> Table:
    """A line for each claim and pair of versions, those on the most models first."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("from", "to", "now", "claim", "on", "repeated"):
        shown.add_column(name, overflow="fold")
    for turn in turns(every):
        cell = found.cells[turn.setting, turn.subjects[0], turn.name, turn.after]
        cells = (
            *(turn.before, turn.after, turn.verdict.value, f"{cell.result.id} {turn.name}"),
            *(_named(turn.subjects), turn.repeated),
        )
        shown.add_row(*(escape(texts.visible(text)) for text in cells))
    return shown


def total(every: Sequence[VerdictChange]) -> str:
    """How many changes there are, and how many of them were seen again."""
    counts = ", ".join(
        f"{count} {seen}" for seen in Seen if (count := sum(f.seen is seen for f in every))
    )
    return texts.counted(len(every), "flip") + (f": {counts}" if counts else "")


def document(every: Sequence[VerdictChange], found: Collected) -> list[dict[str, Any]]:
    """The changes as plain JSON."""
    return [
        {
            "claim": found.cells[flip.setting, flip.subject, flip.name, flip.after].result.id,
            "name": flip.name,
            "subject": flip.subject,
            "setting": flip.setting,
            "before": flip.before,
            "after": flip.after,
            "verdict": flip.verdict.value,
            "seen": flip.seen.value,
        }
        for flip in every
    ]
