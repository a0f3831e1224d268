"""`assay runs`: lists the runs of an evidence file, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.cli.arguments import Parser, file
from assay.harness.report.texts import visible
from assay.harness.results.evidence import Evidence

SHOWN = 8
"""Digits of an id that are shown, enough to name a run among millions."""


def main(arguments: Sequence[str]) -> int:
    """List the runs of a file, oldest first."""
    options = _parser().parse_args(arguments)
    with Evidence.read(options.file) as evidence:
        runs = evidence.runs()
        counts = evidence.counts()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("run", "id", "started", "claims", "exit"):
        table.add_column(name, no_wrap=True)
    table.add_column("of", overflow="fold")
    for number, run in enumerate(runs, start=1):
        ended = "unfinished" if run.finished is None else str(run.exit)
        versions = (f"{name} {run.versions.get(name)}" for name in ("torch", "transformers"))
        settings = (run.profile, f"seed {run.seed}", run.dtype, run.device)
        about = visible(", ".join(map(str, (*_some(run.subjects), *settings, *versions))))
        started, count = run.started[:16].replace("T", " "), counts.get(run.id, 0)
        cells = (str(number), run.id[:SHOWN], started, str(count), ended, about)
        table.add_row(*(escape(visible(cell)) for cell in cells))
    Console(emoji=False).print(table)
    return 0


def _some(names: Iterable[str], most: int = 3) -> list[str]:
    """The first few, and the number of the rest."""
    first, more = [*names][:most], len([*names][most:])
    return [*first, f"{more} more models"] if more else first


def _parser() -> Parser:
    parser = Parser(
        prog="assay runs",
        description="List the runs of an evidence file.  Elsewhere a run is named FILE@NUMBER "
        "(FILE@-1 is the last) or FILE@ID, whose first digits are enough; to compare, "
        "FILE@all are all finished runs.",
    )
    parser.add_argument("file", type=file, metavar="FILE", help="what `--evidence` wrote")
    return parser
