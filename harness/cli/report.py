"""`assay report FILE[@RUN]… --out=page.html`: the page of stored runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec.structs import replace

from assay.harness.cli.arguments import Parser, file, word
from assay.harness.comparison import joining, sides
from assay.harness.report import html
from assay.harness.report.texts import counted
from assay.harness.results.outputs import keep_apart, replace_file


def main(arguments: Sequence[str]) -> int:
    """Write the page; 0."""
    options = _parser().parse_args(arguments)
    side = joining.together(options.runs)
    keep_apart({"--out": options.out}, {name: sides.file_of(name) for name in options.runs})
    results = [replace(row, subject=subject) for (_, _, subject), row in side.rows.items()]
    replace_file(options.out, html.render(side.run, results))
    said = f"{counted(len(results), 'result')} of {counted(side.runs, 'run')}"
    print(f"{said}: {options.out}", file=sys.stderr)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay report",
        description="Write the HTML page of a run, as `--report` does at its end: one "
        "self-contained file.  The run is the latest finished one of an evidence file, "
        "FILE@NUMBER, FILE@ID (see `assay runs FILE`), or a file that `--json` wrote.  Several "
        "runs, or all of a file (FILE@all), share one page, with a table of models and claims: a "
        "claim on a model counts once, by the run that ended last, and where the runs differ in "
        "a setting or version, it is part of the model's name.",
    )
    parser.add_argument(
        "runs", nargs="+", type=word, metavar="FILE[@RUN]", help="evidence, or a JSON report"
    )
    parser.add_argument("--out", type=file, required=True, metavar="PAGE", help="the HTML file")
    return parser
