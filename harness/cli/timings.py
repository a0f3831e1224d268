"""Two runs of the benchmarks, shown: which differences are real."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.comparison.timings import Comparison
from assay.harness.report.cards import number


def document(found: Comparison, share: float) -> dict[str, object]:
    """The comparison as plain JSON."""
    return {
        "differences": [
            {**vars(each), "real": each.real, "regression": each.worse(share)}
            for each in found.differences
        ],
        "figures": [
            {
                "name": each.name,
                "before": vars(each.before),
                "after": vars(each.after),
                "regression": each.worse(share),
            }
            for each in found.moved
        ],
        "share": share,
        "gone": found.gone,
        "new": found.new,
        "too few rounds": found.undecided,
        "doubts": found.doubts,
        "changed": {name: list(values) for name, values in found.changed.items()},
    }


def show(console: Console, found: Comparison, share: float) -> None:
    """The comparison as a table, and whatever else there is to say."""
    for name, (one, other) in found.changed.items():
        console.print(f"{name}: {one} → {other}", highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("benchmark", overflow="fold")
    for name in ("time, after / before", "interval", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for each in sorted(found.differences, key=lambda each: -each.ratio):
        said = "same, as far as can be told"
        if each.real:
            said = "[green]faster[/]" if each.ratio < 1 else "slower, within the share"
        if each.worse(share):
            said = "[red]regression[/]"
        sign = "" if each.paired else " ¹"
        table.add_row(
            escape(each.name),
            f"{each.ratio:.3f}{sign}",
            f"{each.low:.3f} to {each.high:.3f}",
            said,
        )
    console.print(table)
    if not all(each.paired for each in found.differences):
        console.print("¹ seconds as they are: the machine's own speed is not taken out")
    for figure in found.moved:
        said = " [red]regression[/]" if figure.worse(share) else ""
        one, other = (number(each.reached) for each in (figure.before, figure.after))
        console.print(f"moved: {escape(figure.name)}: {one} → {other}{said}", highlight=False)
    for what, names in (
        ("doubtful", found.doubts),
        ("gone", found.gone),
        ("new", found.new),
        ("too few rounds to judge", found.undecided),
    ):
        for name in names:
            console.print(f"{what}: {escape(name)}", highlight=False)
