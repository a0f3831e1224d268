"""`assay compare`: two runs, of claims or of the benchmarks, and what is different."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from assay.harness.cli.arguments import Parser, file, positive
from assay.harness.comparison import joining, sides
from assay.harness.comparison.judging import LEAST, Flip, compare
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import keep_apart

SHARE = 0.1

KINDS = {
    True: ("a run of claims", ("share", "other_machine")),
    False: ("a run of benchmarks", ("any_seed", "any_profile", "least", "html")),
}
"""What is compared, by whether it has claims, with the options that are for the other kind."""


def main(arguments: Sequence[str]) -> int:
    """Compare two runs; 1 if something regressed, otherwise 0."""
    asked = _parser().parse_args(arguments)
    claims = [sides.holds_claims(name) for name in (asked.before, asked.after)]
    if claims[0] != claims[1]:
        words = [KINDS[kind][0] for kind in claims]
        told = (f"{name} is {kind}" for name, kind in zip(_names(asked), words, strict=True))
        raise BadInput(f"{', '.join(told)}; compare two of one kind")
    read = {name: sides.file_of(name) for name in _names(asked)}
    keep_apart({"--html": asked.html}, read)
    what, unfit = KINDS[claims[0]]
    for option in unfit:
        if getattr(asked, option) is not None:
            raise BadInput(f"--{option.replace('_', '-')}: is not for {what}")
    return _claims(asked) if claims[0] else _timings(asked)


def _names(asked: argparse.Namespace) -> tuple[str, str]:
    return asked.before, asked.after


def _claims(asked: argparse.Namespace) -> int:
    """1 if a claim that was as expected is refuted now, or a capability vanished."""
    from assay.harness.comparison.document import document
    from assay.harness.report import compared
    from assay.harness.results.schema import replace_file

    least = LEAST if asked.least is None else asked.least
    before, after = joining.pair(*_names(asked))
    found = compare(before, after, bool(asked.any_seed), bool(asked.any_profile))
    if asked.html is not None:
        replace_file(asked.html, compared.page(found, least))
    if asked.json:
        sys.stdout.write(json.dumps(document(found, least), indent=2, allow_nan=False) + "\n")
    else:
        compared.show(Console(), found, least)
    return 1 if found.flips(Flip.REGRESSION) else 0


def _timings(asked: argparse.Namespace) -> int:
    """1 if a benchmark got slower by more than the share."""
    from assay.harness.cli.timings import document, show
    from assay.harness.comparison import timings

    share = SHARE if asked.share is None else asked.share
    before, after = (timings.Timings.read(Path(name)) for name in _names(asked))
    found = timings.compare(before, after, bool(asked.other_machine))
    if asked.json:
        sys.stdout.write(json.dumps(document(found, share), indent=2) + "\n")
    else:
        show(Console(), found, share)
    return 1 if found.regressions(share) else 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay compare",
        description="Compare two runs: of claims, in files that `pytest --evidence=FILE` or "
        "`--json=FILE` wrote, or of benchmarks, in files that `pytest benchmarks "
        "--benchmark-json FILE` wrote.  The exit code is 1 if something regressed: a claim that "
        "was upheld or did not apply is refuted now, a capability that an upheld claim needs "
        "vanished, or a benchmark is really slower by more than a share.",
    )
    parser.add_argument(
        "before",
        help="a file; of evidence its latest finished run, or FILE@NUMBER, FILE@ID, or FILE@all: "
        "every finished run, as of a sweep",
    )
    parser.add_argument("after", help="another one, held against it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add = parser.add_argument_group("runs of claims").add_argument
    add("--html", metavar="FILE", type=file, help="write one self-contained page too")
    add(
        "--least",
        type=_from_zero,
        help="how far a number must have moved to be told: decades of a law's margin, spreads of "
        f"one draw of a finding (default: {LEAST})",
    )
    add("--any-seed", action="store_true", default=None, help="compare runs of two seeds")
    add("--any-profile", action="store_true", default=None, help="compare runs of two profiles")
    add = parser.add_argument_group("runs of benchmarks").add_argument
    add("--share", type=positive, help=f"by how much a regression is slower (default: {SHARE})")
    add(
        *("--other-machine",),
        action="store_true",
        default=None,
        help="compare what two machines did",
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
