"""`assay merge`: merges evidence files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from assay.harness.cli.arguments import Parser, file
from assay.harness.report.texts import counted
from assay.harness.results.evidence import Evidence


def main(arguments: Sequence[str]) -> int:
    """Merge files into one, created if missing: all of them, or none if one is bad."""
    options = _parser().parse_args(arguments)
    with ExitStack() as opened:
        others = [opened.enter_context(Evidence.read(path)) for path in options.files]
        for other in others:
            other.check()  # before anything is written
        out = opened.enter_context(Evidence.open(options.out))
        out.check()
        new = out.merge(*others)
        runs, claims = len(out.runs()), sum(out.counts().values())
    totals = f"{counted(runs, 'run')}, {counted(claims, 'claim')}"
    print(f"{options.out}: {totals} ({counted(new[0], 'run')} and {counted(new[1], 'claim')} new)")
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay merge",
        description="Copy the runs of evidence files (`pytest --evidence=FILE`) into one file.  "
        "Every run and claim is stored once, however often it is merged.",
    )
    parser.add_argument(
        "out", type=file, metavar="OUT", help="evidence file to write; created if missing"
    )
    parser.add_argument(
        "files", nargs="+", type=file, metavar="FILE", help="evidence file to read"
    )
    return parser
