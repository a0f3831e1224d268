"""`assay compare`: what differs between two runs, of claims or of the benchmarks."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.cli.arguments import Parser, file, positive
from assay.harness.comparison import joining, sides
from assay.harness.comparison.judging import LEAST, compare
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import keep_apart

if TYPE_CHECKING:  # it needs scipy, which runs of claims load later
    from assay.harness.comparison.timings import TimingComparison

SHARE = 0.1
"""By how much a benchmark may get slower, by default."""

KINDS = {
    True: ("a run of claims", ("share", "other_machine")),
    False: ("a run of benchmarks", ("any_seed", "any_profile", "least", "html")),
}
"""The kinds of runs, by whether they have claims, with the options of the other kind."""


def main(arguments: Sequence[str]) -> int:
    """Compare two runs; 1 if something regressed, otherwise 0."""
    options = _parser().parse_args(arguments)
    claims = [sides.holds_claims(name) for name in (options.before, options.after)]
    if claims[0] != claims[1]:
        words = [KINDS[kind][0] for kind in claims]
        both = (f"{name} is {kind}" for name, kind in zip(_names(options), words, strict=True))
        raise BadInput(f"{', '.join(both)}; compare two of one kind")
    read = {name: sides.file_of(name) for name in _names(options)}
    keep_apart({"--html": options.html}, read)
    what, unfit = KINDS[claims[0]]
    for option in unfit:
        if getattr(options, option) is not None:
            raise BadInput(f"--{option.replace('_', '-')}: is not for {what}")
    return _claims(options) if claims[0] else _timings(options)


def _names(options: argparse.Namespace) -> tuple[str, str]:
    return options.before, options.after


def _claims(options: argparse.Namespace) -> int:
    """1 if a claim that was as expected is refuted now, a capability vanished, or a tokenizer
    gives a text other ids.
    """
    from assay.harness.comparison.document import document
    from assay.harness.report import compared
    from assay.harness.results.outputs import replace_file

    least = LEAST if options.least is None else options.least
    before, after = joining.pair(*_names(options))
    comparison = compare(before, after, bool(options.any_seed), bool(options.any_profile))
    if options.html is not None:
        replace_file(options.html, compared.page(comparison, least))
    if options.json:
        sys.stdout.write(document(comparison, least))
    else:
        compared.show(Console(emoji=False), comparison, least)
    return 1 if comparison.worse else 0


def _timings(options: argparse.Namespace) -> int:
    """1 if a benchmark got slower by more than the share."""
    from assay.harness.comparison import timings

    share = SHARE if options.share is None else options.share
    before, after = (timings.Timings.read(Path(name)) for name in _names(options))
    comparison = timings.compare(before, after, bool(options.other_machine))
    if options.json:
        sys.stdout.write(json.dumps(_timings_document(comparison, share), indent=2) + "\n")
    else:
        _show_timings(Console(emoji=False), comparison, share)
    return 1 if comparison.regressions(share) else 0


def _timings_document(comparison: TimingComparison, share: float) -> dict[str, object]:
    """The comparison as plain JSON."""
    return {
        "differences": [
            {**vars(each), "real": each.real, "regression": each.worse(share)}
            for each in comparison.differences
        ],
        "figures": [
            {
                "name": each.name,
                "before": vars(each.before),
                "after": vars(each.after),
                "regression": each.worse(share),
            }
            for each in comparison.moved
        ],
        "verdicts": [
            {**vars(each), "regression": each.worse(share)} for each in comparison.verdicts
        ],
        "share": share,
        "gone": comparison.gone,
        "new": comparison.new,
        "too few rounds": comparison.undecided,
        "doubts": comparison.doubts,
        "changed": {name: list(values) for name, values in comparison.changed.items()},
    }


def _show_timings(console: Console, comparison: TimingComparison, share: float) -> None:
    """The comparison as a table, followed by remarks."""
    from assay.harness.report.cards import number

    for name, (one, other) in comparison.changed.items():
        console.print(f"{name}: {one} → {other}", highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("benchmark", overflow="fold")
    for name in ("time, after / before", "interval", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for each in sorted(comparison.differences, key=lambda each: -each.ratio):
        outcome = "no significant difference"
        if each.real:
            outcome = "[green]faster[/]" if each.ratio < 1 else "slower, within the share"
        if each.worse(share):
            outcome = "[red]regression[/]"
        sign = "" if each.paired else " ¹"
        table.add_row(
            escape(each.name),
            f"{each.ratio:.3f}{sign}",
            f"{each.low:.3f} to {each.high:.3f}",
            outcome,
        )
    console.print(table)
    if not all(each.paired for each in comparison.differences):
        console.print("¹ seconds as they are: the machine's own speed is not taken out")
    for figure in comparison.moved:
        outcome = " [red]regression[/]" if figure.worse(share) else ""
        one, other = (number(each.reached) for each in (figure.before, figure.after))
        console.print(f"moved: {escape(figure.name)}: {one} → {other}{outcome}", highlight=False)
    for change in comparison.verdicts:
        outcome = " [red]regression[/]" if change.worse(share) else ""
        words = f"{escape(change.name)}: {change.before} → {change.after}{outcome}"
        console.print(f"changed verdict: {words}", highlight=False)
    for what, names in (
        ("doubtful", comparison.doubts),
        ("gone", comparison.gone),
        ("new", comparison.new),
        ("too few rounds to judge", comparison.undecided),
    ):
        for name in names:
            console.print(f"{what}: {escape(name)}", highlight=False)


def _parser() -> Parser:
    parser = Parser(
        prog="assay compare",
        description="Compare two runs: of claims, in files that `pytest --evidence=FILE` or "
        "`--json=FILE` wrote, or of benchmarks, in files that `pytest benchmarks "
        "--benchmark-json FILE` or `assay gpu` wrote.  The exit code is 1 if something "
        "regressed: a claim that was upheld or did not apply is refuted now, a capability that an "
        "upheld claim needs vanished, a tokenizer gives a fixed text other ids (H4), or a "
        "benchmark is really slower by more than a share.",
    )
    parser.add_argument(
        "before",
        help="a file; of evidence its latest finished run, or FILE@NUMBER, FILE@ID, or FILE@all: "
        "every finished run, as of a sweep",
    )
    parser.add_argument("after", help="the file to compare it with")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add = parser.add_argument_group("runs of claims").add_argument
    add("--html", metavar="FILE", type=file, help="also write one self-contained page")
    add(
        "--least",
        type=_from_zero,
        help="how far a number must have moved to be reported: decades of a law's margin, "
        f"spreads of one draw of a finding (default: {LEAST})",
    )
    add("--any-seed", action="store_true", default=None, help="allow different seeds")
    add("--any-profile", action="store_true", default=None, help="allow different profiles")
    add = parser.add_argument_group("runs of benchmarks").add_argument
    add("--share", type=positive, help=f"by how much a regression is slower (default: {SHARE})")
    add(
        *("--other-machine",),
        action="store_true",
        default=None,
        help="allow different machines",
    )
    return parser


def _from_zero(text: str) -> float:
    """A number from 0 on, and not infinite."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return number
