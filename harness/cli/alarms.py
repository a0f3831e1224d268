"""`assay alarms`: the rate of false positives on sound models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.checking import cases
from assay.harness.checking.claim import unknown
from assay.harness.checking.leaks import Sensitivity, by_law
from assay.harness.cli.arguments import Parser, add_claims, add_profile, file, whole
from assay.harness.cli.kills import Rooms, known_family
from assay.harness.faults.alarms import Tally, by_type, tally
from assay.harness.models import runs
from assay.harness.models.loading import DTYPES
from assay.harness.report import texts
from assay.harness.results import expectation_files
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.specs import ModelKind, ModelSpec
from assay.harness.results.verdicts import Kind, Result
from assay.harness.runners import runner
from assay.harness.runners.environments import Environment
from assay.harness.runners.resumable import Resumable
from assay.harness.runners.runner import FAILED, Settings, Start

USUAL = ("float32", "bfloat16", "float16")
"""The default dtypes."""

MOST = 10_000
"""The most seeds; each takes a run of minutes."""

WIDTH = 132
"""Columns where there is no terminal."""


def main(
    arguments: Sequence[str], rooms: Callable[[], Rooms], start: Start = runner.process
) -> int:
    """Run missing claims and print the rates; 1 for a false positive or a broken run, else 0."""
    options = _parser().parse_args(arguments)
    room = rooms()
    kinds = list(dict.fromkeys(known_family(name, room.families) for name in options.family))
    models = [room.families[kind] for kind in kinds or room.families]
    expected = expectation_files.load(room.expectations)
    _check_claims(options.claims, room)
    path = options.evidence.absolute()
    # A file that cannot be read or written is reported at once.
    (Evidence.read if options.count else Evidence.open)(path).close()
    here = Environment(Path(sys.executable), runs.versions())
    results_by_dtype: dict[str, list[Result]] = {}
    broken = []
    for seed in range(1, options.seeds + 1):
        for dtype in dict.fromkeys(options.dtype or USUAL):
            settings = Settings.of(options, seed=seed, dtype=dtype, marker="law")
            specs, name = [of_seed(model, seed) for model in models], f"seed {seed}, {dtype}"
            laws = Resumable(path, specs, settings, ["-q", "--tb=no"], start=start)
            if not options.count and (outcome := laws.run(here)).state == FAILED:
                broken.append(f"{name}: {'; '.join(filter(None, [*outcome.notes, outcome.why]))}")
            results = laws.results(here)
            results_by_dtype.setdefault(dtype, []).extend(results)
            if options.count and not results:
                continue
            counts = tally(dtype, results, expected)
            line = f"{name}: {counts.checks} checks, {len(counts.alarms)} false positives"
            print(line, file=sys.stderr, flush=True)
    if options.count and not any(results_by_dtype.values()):
        raise BadInput(f"{path}: has no runs like these; leave --count out to run the claims")
    tallies = [tally(dtype, results, expected) for dtype, results in results_by_dtype.items()]
    console = Console(emoji=False, width=None if sys.stdout.isatty() else WIDTH)
    show(console, tallies, broken)
    if options.leaks:
        console.print()
        show_leaks(console, results_by_dtype)
    return 1 if broken or any(each.alarms for each in tallies) else 0


def of_seed(model: str, seed: int) -> str:
    """The name of a kind's model made from ``seed``; itself where there is one such model only,
    which prompts of that seed are then drawn for.
    """
    spec = ModelSpec.parse(model)
    return model if spec.kind is ModelKind.CHAT else str(replace(spec, seed=seed))


def _check_claims(names: Sequence[str], room: Rooms) -> None:
    """Raise `BadInput` for a claim that is not a law."""
    every = cases.collect(room.claims)
    laws = [(each.claim, each.name) for each in every if each.claim.kind is Kind.LAW]
    if why := unknown(names, laws, "law"):
        raise BadInput(f"--claim {why}")


def show(console: Console, tallies: Sequence[Tally], broken: Sequence[str]) -> None:
    """A table of rates in Markdown, and the false positives."""
    table = Table(box=box.MARKDOWN)
    table.add_column("dtype")
    for name in ("models", "checks", "false positives", "rate", "95 % interval"):
        table.add_column(name, justify="right")
    for name in ("known defects", "undecided"):
        table.add_column(name, justify="right")
    for each in tallies:
        low, high = each.interval
        table.add_row(
            *(each.dtype, str(each.models), str(each.checks), str(len(each.alarms))),
            *(f"{each.rate:.2%}", f"{low:.2%} to {high:.2%}"),
            *(str(each.known), str(len(each.undecided))),
        )
    console.print(table)
    for title, kind in (("False positives", "alarms"), ("Undecided", "undecided")):
        lines = [
            f"- {model} in {each.dtype}: {id} {name}" + (f" ({count} times)" if count > 1 else "")
            for each in tallies
            for model, id, name, count in by_type(getattr(each, kind))
        ]
        if lines:
            console.print("\n".join(["", f"{title}:", *lines]), markup=False, highlight=False)
    for line in broken:
        console.print(f"did not finish: {line}", markup=False, highlight=False, soft_wrap=True)


def show_leaks(console: Console, results_by_dtype: Mapping[str, Iterable[Result]]) -> None:
    """A table in Markdown: the leak that each law detects, typical and worst, by dtype."""
    table = Table(box=box.MARKDOWN)
    table.add_column("law")
    for dtype in results_by_dtype:
        table.add_column(f"{dtype}: typical / worst", justify="right")
    table.add_column("judged by")
    for (id, name), each in by_law(results_by_dtype).items():
        leaks = [_leak(each[dtype]) if dtype in each else "" for dtype in results_by_dtype]
        bound = max((leak.bound for leak in each.values()), key=len)
        table.add_row(escape(f"{id} {name}"), *leaks, bound)
    console.print(table)


def _leak(sensitivity: Sensitivity) -> str:
    blunt = f" ({sensitivity.blunt} too blunt)" if sensitivity.blunt else ""
    if sensitivity.one:
        return f"one {sensitivity.one}{blunt}"
    return f"{texts.number(sensitivity.typical)} / {texts.number(sensitivity.worst)}{blunt}"


def _parser() -> Parser:
    parser = Parser(
        prog="assay alarms",
        description="Run all laws on sound models: one of each family, made from seeds 1 to N, in "
        "several dtypes.  Reports the rate of false positives with its interval; known defects, "
        "which the expectations list, are left out.  Run again with the same evidence, "
        "the command resumes.  The exit code is 1 if there is a false positive.",
    )
    add = parser.add_argument
    add("--evidence", type=file, required=True, metavar="FILE", help="where results are kept")
    add("--seeds", type=whole(1, MOST), default=20, metavar="N", help="how many (default 20)")
    add("--dtype", action="append", choices=[*DTYPES], help=f"(default: {', '.join(USUAL)})")
    add("--family", action="append", default=[], metavar="NAME", help="only this (repeatable)")
    add_claims(parser, "only this claim")
    add_profile(parser, "glance")
    add("--leaks", action="store_true", help="also print the smallest leak that each law detects")
    add("--count", action="store_true", help="run nothing; count the results in the evidence")
    return parser
