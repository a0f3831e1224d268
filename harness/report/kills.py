"""Shows the kill matrix in a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.faults.kills import Family, Matrix, Row
from assay.harness.results.verdicts import Verdict


def cell(row: Row) -> str:
    """Which of the claims that must catch a fault did, by number, and how many others.

    ``C2 +3``: one or more of the claims numbered C2, and three claims that need not have.
    """
    if not row.applies:
        return "–"
    must = dict.fromkeys(id for id, _ in row.killers if id in row.caught_by)
    rest = sum(id not in row.caught_by for id, _ in row.killers)
    also = f"+{rest}" if rest else ""
    return " ".join([", ".join(must) or "survived", also]).strip()


def laws_upheld(family: Family) -> str:
    """How many laws the sound model upholds, of those that apply."""
    verdicts = [outcome.verdict for outcome in family.healthy if outcome.kind == "law"]
    upheld = verdicts.count(Verdict.UPHELD)
    return f"{upheld} of {len(verdicts) - verdicts.count(Verdict.NOT_APPLICABLE)}"


def summary(matrix: Matrix) -> str:
    """The figures of the whole matrix in a line."""
    applying = [row for row in matrix.rows if row.applies]
    killed = sum(row.killed for row in applying)
    by_family = ", ".join(
        f"{family.name} {sum(r.killed for r in family.rows)}/{sum(r.applies for r in family.rows)}"
        for family in matrix.families
    )
    faults = len({row.fault for row in matrix.rows})
    processes = f"{matrix.processes} process{'es' if matrix.processes > 1 else ''}"
    return (
        f"{killed} of {len(applying)} injected faults killed ({faults} faults in "
        f"{len(matrix.families)} families: {by_family}) in {matrix.seconds / 60:.1f} minutes "
        f"on {processes}"
    )


def lists(matrix: Matrix) -> list[tuple[str, list[str]]]:
    """The lists printed with the table, by title; the first ones fail a run."""
    survivors = []
    for row in matrix.survivors:
        ids = ", ".join(f"{id} {name}" for id, name in row.killers)
        lost = ", ".join(f"{id} {name}" for id, name in row.undecided)
        also = f"; killed by {ids}" if ids else ""
        also += f"; no longer decided: {lost}" if lost else ""
        must = ", ".join(row.caught_by)
        survivors.append(f"{row.fault} in {row.family}: {must} did not notice{also}")
    expected = [
        f"{family.name}: {outcome.id} {outcome.name}: {outcome.why}"
        for family in matrix.families
        for outcome in family.healthy
        if outcome.kind == "law" and outcome.verdict == Verdict.REFUTED and outcome.expected
    ]
    broken = [
        f"{family.name}: {outcome.id} {outcome.name} is {outcome.verdict}: {outcome.why}"
        for family in matrix.families
        for outcome in family.broken
    ]
    return [
        ("Survivors", survivors),
        ("Sound models that break a claim", broken),
        ("Laws that kill no fault", [f"{id} {name}" for id, name in matrix.idle]),
        ("Findings whose control comes out right nowhere", [f"{i} {n}" for i, n in matrix.loose]),
        ("Faults that apply nowhere", matrix.unplanted),
        ("Known defects, where a claim cannot detect a fault", expected),
    ]


def show(console: Console, matrix: Matrix) -> None:
    """The matrix as a table, a row for each fault, a column for each family; then the lists."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("fault", no_wrap=True)
    for family in matrix.families:
        table.add_column(escape(family.name), overflow="fold")
    table.add_row(
        "none", *(f"[dim]{escape(laws_upheld(family))}[/]" for family in matrix.families)
    )
    for rows in _by_fault(matrix):
        table.add_row(rows[0].fault, *map(_coloured, rows))
    console.print(table)
    for title, lines in lists(matrix):
        for line in lines:
            console.print(f"[bold]{title}:[/] {escape(line)}", highlight=False)
    sign = "[green]✓[/]" if matrix.holds else "[red]✗[/]"
    console.print(f"{sign} {escape(summary(matrix))}", highlight=False)


def _by_fault(matrix: Matrix) -> list[tuple[Row, ...]]:
    return list(zip(*(family.rows for family in matrix.families), strict=True))


def _coloured(row: Row) -> str:
    colour = {"killed": "green", "does not apply": "dim"}.get(row.state, "red")
    return f"[{colour}]{escape(cell(row))}[/]"
