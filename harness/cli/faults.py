"""`assay faults`: the catalogue of faults that can be injected."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.checking import outside
from assay.harness.cli import models
from assay.harness.cli.arguments import Parser, add_outside
from assay.harness.cli.models import Load
from assay.harness.faults import FAULTS
from assay.harness.faults.engines import ENGINE_FAULTS
from assay.harness.models.loading.runs import Options
from assay.harness.results.errors import BadInput


def main(arguments: Sequence[str], load: Load) -> int:
    """Print every fault, with ``--model`` those of models and what this one lacks for them; 0."""
    parser = _parser()
    options = parser.parse_args(arguments)
    outside.load((*options.outside, *outside.installed()))
    lacks: dict[str, str] | None = None
    if any(argument.partition("=")[0] == "--model" for argument in arguments):
        subject = load(options.model, models.loading(options))
        lacks = {name: fault.lacks(subject) for name, fault in FAULTS.items()}
    elif models.loading(options) != Options():
        raise BadInput("options about a model require --model")
    show(Console(emoji=False), lacks)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay faults",
        description="List the faults that can be injected into a model (as MODEL+FAULT), with the "
        "capabilities and parts that each needs and the claims that must catch it.  With --model: "
        "which of them apply to a model, and what it lacks for the others.",
    )
    models.add_options(parser)
    add_outside(parser)
    return parser


def show(console: Console, lacks: dict[str, str] | None) -> None:
    """The catalogue as a table, and the number of faults."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("fault", overflow="fold", min_width=max(map(len, FAULTS)) + 2)
    table.add_column("needs" if lacks is None else "lacks", overflow="fold")
    table.add_column("caught by", overflow="fold", max_width=9)
    for fault in FAULTS.values():
        second = ", ".join(fault.needs) if lacks is None else lacks[fault.name]
        sign = "" if lacks is None else "[dim]– [/]" if lacks[fault.name] else "[green]✓ [/]"
        named = f"{sign}[bold]{fault.name}[/]\n{escape(fault.says)}"
        table.add_row(named, escape(second), ", ".join(fault.caught_by))
    for name, each in ({} if lacks is not None else ENGINE_FAULTS).items():
        named = f"[bold]{name}[/]\n{escape(each.says)}"
        table.add_row(named, "engine:own:MODEL", ", ".join(each.caught_by))
    console.print(table)
    applying = "" if lacks is None else f"; {sum(not why for why in lacks.values())} apply"
    count = f"{len(FAULTS)} faults{applying}"
    count += "" if applying else f", and {len(ENGINE_FAULTS)} of Assay's own engine"
    console.print(count, highlight=False)
