"""`assay flips`: claims that changed between versions, run once more if asked."""

from __future__ import annotations

import argparse
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

from assay.harness.checking.profiles import PROFILES, check_profile
from assay.harness.cli.arguments import Parser, file, whole
from assay.harness.cli.matrix import PACKAGE
from assay.harness.cli.repeating import Batch, batches, repeat, unrepeated
from assay.harness.report import texts
from assay.harness.report.atlas.collect import Collected, collect
from assay.harness.report.atlas.flips import Flip, Seen, flips, turns
from assay.harness.results import evidence_file
from assay.harness.results.evidence import Evidence
from assay.harness.results.seeds import LARGEST_SEED
from assay.harness.runners import elsewhere, environments
from assay.harness.runners.environments import Environment

Having = Callable[[Path, str, str], Environment]
"""(folder, package, version) → an environment with it; raises as `environments.having`."""

MOST_NAMED = 6
"""So many models are named in a line; the rest is counted."""


def main(
    arguments: Sequence[str],
    load: object,
    having: Having = environments.having,
    run: Callable[[list[str]], int] | None = None,
) -> int:
    """Tell the flips, and repeat them if asked to; 1 if a repeat did not come to its end."""
    asked = _parser().parse_args(arguments)
    check_profile(asked.profile)
    console = Console(stderr=asked.json, highlight=False, emoji=False)
    paths, broke = list(asked.evidence), 0
    if asked.repeat is not None:
        Evidence.open(asked.repeat).close()  # what cannot be written to is known beforehand
        paths += [asked.repeat] * (asked.repeat not in paths)
        aside = partial(elsewhere.stream, output=sys.stderr if asked.json else None)
        broke = _repeat(asked, collect(paths), console, having, run or aside)
    found = collect(paths)
    every = flips(found)
    if asked.json:
        sys.stdout.write(json.dumps(document(every, found), indent=2) + "\n")
    else:
        if every:
            console.print(table(every, found))
        console.print(told(every))
    return 1 if broke else 0


def _repeat(
    asked: argparse.Namespace,
    found: Collected,
    console: Console,
    having: Having,
    run: Callable[[list[str]], int],
) -> int:
    """Run once more what was not seen again; how many runs did not come to their end."""
    todo = batches(unrepeated(flips(found), found, asked.profile, asked.seed), found)
    had = partial(having, Path(asked.environments).absolute(), PACKAGE)
    rows = repeat(todo, asked.repeat.absolute(), asked.profile, asked.seed, had, run)
    broke = 0
    for done, (batch, row) in enumerate(rows, start=1):
        why = "; ".join(filter(None, [*row.notes, row.why]))
        broke += bool(why)
        console.print(_line(f"{done}/{len(todo)}", batch, why), soft_wrap=True)
    return broke


def _parser() -> Parser:
    parser = Parser(
        prog="assay flips",
        description="List the claims that are upheld in one version of transformers and refuted "
        "in the next, or the other way round.  --repeat runs each of them once more in both "
        "versions, with another seed: what does not come out again is of the search, and the "
        "atlas leaves it out.  Given again, it goes on where it stopped.",
    )
    add = parser.add_argument
    add("evidence", nargs="+", type=file, metavar="EVIDENCE", help="a file of several versions")
    add(
        "--repeat", type=file, metavar="FILE", help="repeat flips; an evidence file for what comes"
    )
    add("--profile", default="quick", help=f"of repeats: {', '.join(PROFILES)} (default: quick)")
    add("--seed", type=whole(0, LARGEST_SEED), default=1, help="of repeats (default: 1)")
    add("--json", action="store_true", help="print JSON, and the steps to standard error")
    add(
        "--environments",
        metavar="FOLDER",
        default=str(evidence_file.default_path().parent / "environments"),
        help="where the versions are kept, as for `versions` (default: in the cache folder)",
    )
    return parser


def _line(place: str, batch: Batch, why: str) -> str:
    checks = f"{texts.counted(len(batch.claims), 'claim')} on {_named(batch.subjects)}"
    mark, more = ("[red]✗[/]", f": {escape(why)}") if why else ("[green]✓[/]", "")
    return f"{mark} {place} {PACKAGE} {batch.where[0]}, {escape(checks)}{more}"


def _named(subjects: Sequence[str]) -> str:
    rest = len(subjects) - MOST_NAMED
    return ", ".join(subjects[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def table(every: Sequence[Flip], found: Collected) -> Table:
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


def told(every: Sequence[Flip]) -> str:
    """How many there are, and how many of them were seen again."""
    counts = ", ".join(
        f"{count} {seen}" for seen in Seen if (count := sum(f.seen is seen for f in every))
    )
    return texts.counted(len(every), "flip") + (f": {counts}" if counts else "")


def document(every: Sequence[Flip], found: Collected) -> list[dict[str, Any]]:
    """The flips as plain JSON."""
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
