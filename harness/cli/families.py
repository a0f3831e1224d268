"""`assay families`: every type of language model, built tiny and run once."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from assay.harness.cli.arguments import Parser, file, seconds
from assay.harness.cli.families_schema import document
from assay.harness.results.outputs import keep_apart, replace_file

LIMIT = 60.0


class TypeRow(Protocol):
    """One type built as one kind of model (`fixtures.families.survey.Row`)."""

    model_type: str
    kind: str
    name: str
    parameters: int
    layers: list[str]
    build_seconds: float
    run_seconds: float
    ways: dict[str, str | None]
    capabilities: dict[str, str | None]
    rule: str
    why: str

    @property
    def runs(self) -> bool:
        """Whether it was built and run."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON types."""


Survey = Callable[[Sequence[str], str | None, float, Path | None], tuple[int, Iterator[TypeRow]]]
"""(types, kind, limit, file to record capabilities in) → the number of rows, and the rows.

Raises `BadInput`.
"""


def main(arguments: Sequence[str], survey: Survey) -> int:
    """Print the table; always 0, as types that do not run are results, too."""
    options = _parser().read(arguments, "types")
    keep_apart({"--json": options.json, "--record": options.record})
    total, rows = survey(options.types, options.kind, options.limit, options.record)
    console = Console(emoji=False)
    tracked = track(
        rows,
        "models",
        total,
        console=Console(emoji=False, stderr=True),
        transient=True,
        disable=_quiet(),
    )
    results = list(tracked)
    if options.json is not None:
        text = json.dumps(document([row.as_json() for row in results]), indent=2)
        replace_file(options.json, text + "\n")
    if options.markdown:
        sys.stdout.write(markdown(results))
    else:
        show(console, results)
    return 0


def _quiet() -> bool:
    return not sys.stderr.isatty()


def _parser() -> Parser:
    parser = Parser(
        prog="assay families",
        description="Build every type of language model that transformers has as a tiny model, "
        "run it once on 16 tokens, and show the result.",
    )
    add = parser.add_argument
    add("types", nargs="*", metavar="TYPE", help="a model type, such as llama (default: all)")
    add("--kind", help="causal, masked or seq2seq (default: all three)")
    add("--json", type=file, metavar="FILE", help="write the table as JSON, too")
    add(
        "--record",
        type=file,
        metavar="FILE",
        help="probe the capabilities of each type and record them as expectations of its models",
    )
    add("--markdown", action="store_true", help="print Markdown in place of a table")
    add("--limit", type=seconds, default=LIMIT, help="time limit of a type, in seconds")
    return parser


def counts(rows: Sequence[TypeRow]) -> str:
    """How many of the types run, kind by kind."""
    of, run = Counter(row.kind for row in rows), Counter(row.kind for row in rows if row.runs)
    return "; ".join(f"{kind}: {run[kind]} of {of[kind]} run" for kind in of)


def layers(row: TypeRow) -> str:
    """The kinds of layers in order, each once, with its number."""
    return ", ".join(
        f"{number} {kind}" if number > 1 else kind for kind, number in Counter(row.layers).items()
    )


def remark(row: TypeRow) -> str:
    """Why it does not run; else the ways of running it that fail, and the rule that it needed."""
    if row.why:
        return row.why
    unsupported = [f"takes no {way}" for way, why in row.ways.items() if why is not None]
    return "; ".join([*unsupported, *([row.rule] if row.rule else [])])


def cells(row: TypeRow) -> list[str]:
    """One row as text: type, kind, class, parameters, layers."""
    parameters = f"{row.parameters:,}".replace(",", " ") if row.parameters else ""
    return [row.model_type, row.kind, row.name, parameters, layers(row)]


def show(console: Console, rows: Sequence[TypeRow]) -> None:
    """The table, remarks on single types, and the counts in the last line."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for head in (*HEADS, "build, run"):
        number = head in ("parameters", "build, run")
        table.add_column(head, justify="right" if number else "left", overflow="fold")
    for row in rows:
        sign = "[green]✓[/]" if row.runs else "[red]✗[/]"
        seconds = f"{row.build_seconds:.2f} s"
        if row.ways:
            seconds = f"{row.build_seconds:.2f}, {row.run_seconds:.2f} s"
        table.add_row(sign, *map(escape, cells(row)), seconds)
    console.print(table)
    for row in rows:
        if text := remark(row):
            sign = "[green]✓[/]" if row.runs else "[red]✗[/]"
            console.print(f"{sign} {row.model_type} ({row.kind}): {escape(text)}", highlight=False)
    console.print(counts(rows), highlight=False)


HEADS = ("type", "kind", "class", "parameters", "layers")


def markdown(rows: Sequence[TypeRow]) -> str:
    """The table as Markdown, without seconds, which differ from run to run."""
    heads = [*HEADS, "runs", "remarks"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        texts = [*cells(row), "yes" if row.runs else "no", remark(row)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in texts) + " |")
    return "\n".join([*lines, "", counts(rows), ""])
