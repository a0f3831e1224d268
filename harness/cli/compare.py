"""`assay compare`: what differs between two runs of claims."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from rich.console import Console

from assay.harness.cli.arguments import Parser
from assay.harness.comparison import joining
from assay.harness.comparison.judging import LEAST, compare


def main(arguments: Sequence[str]) -> int:
    """Compare two runs.

    1 if a claim that was as expected is refuted now, a capability vanished, or a tokenizer gives
    a text other ids; otherwise 0.
    """
    from assay.harness.comparison.document import document
    from assay.harness.report import compared

    options = _parser().parse_args(arguments)
    names = options.before, options.after
    comparison = compare(*joining.pair(*names), options.any_seed, options.any_profile)
    if options.json:
        sys.stdout.write(document(comparison, options.least))
    else:
        compared.show(Console(emoji=False), comparison, options.least)
    return 1 if comparison.worse else 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay compare",
        description="Compare two runs, in files that `pytest --evidence=FILE` or `--json=FILE` "
        "wrote.  The exit code is 1 if something regressed: a claim that was upheld or did not "
        "apply is refuted now, a capability that an upheld claim needs vanished, or a tokenizer "
        "gives a fixed text other ids (H4).",
    )
    add = parser.add_argument
    add(
        "before",
        help="a file; of evidence its latest finished run, or FILE@NUMBER, FILE@ID, or FILE@all: "
        "every finished run, as of a sweep",
    )
    add("after", help="the file to compare it with")
    add("--json", action="store_true", help="print JSON")
    add(
        "--least",
        type=_from_zero,
        default=LEAST,
        help="how far a number must have moved to be reported: decades of a law's margin, "
        f"spreads of one draw of a finding (default: {LEAST})",
    )
    add("--any-seed", action="store_true", help="allow different seeds")
    add("--any-profile", action="store_true", help="allow different profiles")
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
