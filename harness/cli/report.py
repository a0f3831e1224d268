"""`assay report FILE[@RUN] --out page.html`: the page of a stored run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from assay.harness.cli.arguments import Parser, file, word
from assay.harness.comparison import sides
from assay.harness.report import html
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import keep_apart, replace_file


def main(arguments: Sequence[str]) -> int:
    """Write the page; 0."""
    options = _parser().parse_args(arguments)
    runs = sides.read(options.run)
    if len(runs) != 1:
        raise BadInput(f"{options.run}: names {len(runs)} runs; a page is about one")
    (side,) = runs
    keep_apart(
        {"--out": options.out}, {options.run: Path(side.name.rpartition("@")[0] or side.name)}
    )
    results = [*side.rows.values()]
    replace_file(options.out, html.render(side.run, results))
    print(f"{len(results)} results are written to {options.out}", file=sys.stderr)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay report",
        description="Write a run's HTML page, as `--report` does at its end: one self-contained "
        "file.  The run is the latest finished one of an evidence file, FILE@NUMBER, FILE@ID (see "
        "`assay runs FILE`), or a file that `--json` wrote.",
    )
    parser.add_argument("run", type=word, metavar="FILE[@RUN]", help="evidence, or a JSON report")
    parser.add_argument("--out", type=file, required=True, metavar="PAGE", help="the HTML file")
    return parser
