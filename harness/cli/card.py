"""`assay card`: a machine's results in the benchmarks, as Markdown and as plots."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from assay.harness.cli.arguments import Parser, file, folder
from assay.harness.comparison.timings import Timings
from assay.harness.report import cards


def main(arguments: Sequence[str]) -> int:
    """Print the table of every file as Markdown, and draw the plots into ``--plots``."""
    options = _parser().parse_args(arguments)
    runs = [Timings.read(path) for path in options.files]
    pages = [cards.markdown(run) for run in runs]
    if len(runs) > 1:
        pages.append(cards.machines(runs))
    sys.stdout.write("\n".join(pages))
    if options.plots is not None:
        for path in cards.plots(runs, options.plots):
            print(path, file=sys.stderr)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay card",
        description="Print what `pytest benchmarks --benchmark-json FILE` or `assay gpu` "
        "measured, as Markdown: a table for each file, and one with a column for each of several.",
    )
    parser.add_argument("files", nargs="+", type=file, metavar="FILE", help="a file of results")
    help = "draw plots into a folder, rooflines among them"
    parser.add_argument("--plots", type=folder, metavar="FOLDER", help=help)
    return parser
