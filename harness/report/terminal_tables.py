"""The two tables of a subject in a terminal: its laws, and its findings."""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby

from rich.box import Box
from rich.table import Table
from rich.text import Text

from assay.harness.report import controls, intervals, texts, words
from assay.harness.report.texts import visible
from assay.harness.report.words import SYMBOLS, Judgements
from assay.harness.results import bibliography
from assay.harness.results.verdicts import Result, Verdict

STYLES = {
    Verdict.UPHELD: "green",
    Verdict.REFUTED: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_APPLICABLE: "dim",
}

BAR_CELLS = 5
BAR_DECADES = 3.0
"""The margin in decades that fills the bar."""

STRIP_CELLS = 15

STRIP = ("─", "━", "●", "┃")
"""Four characters: a line, an interval on it, its point, a bound across it."""

EIGHTHS = " ▏▎▍▌▋▊▉█"

ROOMY = 104
"""From this width on, every number has its own column."""

MOST_TEXT = 300
MOST_ROWS = 40

SHORTEST_COUNTS = 14
"""Cells for the counts of a number's verdicts: three of them."""

_RULE = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")


def _empty(claim: str, *headings: str) -> Table:
    """A table without rows; ``headings`` are those between verdict and cost."""
    table = Table(
        box=_RULE,
        padding=0,
        pad_edge=False,
        show_edge=False,
        header_style="dim",
    )
    table.add_column(no_wrap=True)
    table.add_column(claim, ratio=1)
    table.add_column("verdict", no_wrap=True)
    for heading in headings:
        # The first begins with a picture; the others are numbers.
        right = heading in ("observed", "allowed")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    table.add_column("tried", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    return table


def numbers(rows: list[Result], width: int) -> Table:
    """A line of ``width`` cells for each claim's number, by document: one of its sentences, and
    how many variants came to what.
    """
    groups: dict[str, list[Result]] = {}
    for row in rows:
        groups.setdefault(row.id, []).append(row)
    documents = {id: _document(variants) for id, variants in groups.items()}
    table = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(3):
        table.add_column(no_wrap=True)
    room = width - max(map(len, groups)) - SHORTEST_COUNTS - 3
    document_of = documents.__getitem__
    for (key, title), ids in groupby(sorted(groups, key=document_of), document_of):
        heading = (key, texts.shortened(title, room))
        table.add_row(*(Text(visible(each), style="dim") for each in heading))
        for id in ids:
            table.add_row(*_number(groups[id], room))
    return table


def _number(variants: list[Result], room: int) -> tuple[Text, Text, Text]:
    """The line of a number: it, one of its sentences in ``room`` cells, and counts of verdicts."""
    sentences = Counter(row.name.partition(" [")[0] for row in variants)
    ((sentence, _),) = sentences.most_common(1)
    more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
    counts = Text()
    for verdict, count in words.tally(variants).items():
        if count:
            counts.append(f"{count} {SYMBOLS[verdict]} ", style=STYLES[verdict])
    name = Text(visible(texts.shortened(sentence, room - len(more)))).append(more, "dim")
    return Text(visible(variants[0].id), style="bold"), name, counts


def _document(rows: list[Result]) -> tuple[str, str]:
    """Key and title of the first document that claims of a number name."""
    works = (work for row in rows for work in bibliography.cited(row.source))
    first = next((work for work in works if work.key.isdigit()), None)
    return (first.key, first.title) if first else ("–", "Beyond the documents")


def laws(
    rows: list[Result],
    judgements: Judgements,
    roomy: bool,
    explain: bool = False,
) -> Table:
    """One row per law; where there is little room, its numbers are below its margin.

    With ``explain`` its source, its controls, the smallest leak that it detects and its bound
    follow below it.
    """
    numbers = (" margin", "observed", "allowed") if roomy else (" margin, numbers",)
    table = _empty("law", *numbers)
    for row in rows:
        observed, allowed = (visible(texts.number(n)) for n in (row.observed, row.bound))
        margin = _margin(row)
        if not roomy:
            margin.append(f"\n {observed} of {allowed}", style="dim")
        claim = _claim(row, judgements.get((row.name, row.subject)))
        if explain:
            claim.append(visible(_sourced(row), keep="\n"), "dim")
            for name, text in controls.lines(row):
                line = f"\n{name}: {texts.clipped(text, MOST_TEXT)}"
                claim.append(visible(line, keep="\n"), "dim")
        table.add_row(
            Text(visible(row.id), style="bold"),
            claim,
            _verdict(row.verdict),
            margin,
            *((observed, allowed) if roomy else ()),
            str(row.examples),
            visible(texts.duration(row.seconds)),
        )
    return table


def findings(rows: list[Result], judgements: Judgements, roomy: bool, explain: bool) -> Table:
    """One row per finding: a picture of its interval, the numbers, and the claim about them.

    With ``explain`` the control, additional measurements and tables follow below its name.
    """
    heading = " interval, bound"
    table = _empty("finding", *((heading, " observed") if roomy else (heading,)))
    for row in rows:
        value, span = intervals.estimate(row.observed, row.interval)
        numbers = Text(" " + visible(" ".join(filter(None, (value, span)))))
        # A second limit goes on a line of its own: the names need the room.
        bound = texts.clipped(intervals.claimed(row), 60).replace(" and ", "\n and ")
        numbers.append(visible(f"\n {bound}", keep="\n"), "dim")
        picture = strip(row)
        if not roomy:
            picture = Text("\n").join([picture, numbers])
        claim = _claim(row, judgements.get((row.name, row.subject)))
        if explain:
            claim.append(visible(_explained(row) + _sourced(row), keep="\n"), "dim")
        table.add_row(
            Text(visible(row.id), style="bold"),
            claim,
            _verdict(row.verdict),
            picture,
            *((numbers,) if roomy else ()),
            str(row.examples),
            visible(texts.duration(row.seconds)),
        )
    return table


def _explained(row: Result) -> str:
    lines = [""]
    if (control := intervals.control(row)) is not None:
        words = texts.clipped(control.words, MOST_TEXT)
        lines.append(f"control: {control.value}" + (f" ({words})" if words else ""))
    medians = ", ".join(f"{name} {value}" for name, value in intervals.recorded(row))
    if medians:
        lines.append(f"medians: {texts.clipped(medians, MOST_TEXT)}")
    tables = (plot for plot in row.plots if plot.kind == "table")
    rows = [cells for table in tables for cells in table.rows[:MOST_ROWS]]
    lines += [texts.clipped(": ".join(map(str, cells)), MOST_TEXT) for cells in rows]
    return "\n".join(lines)


def _sourced(row: Result) -> str:
    """A line with the claim's source; empty where the result has none."""
    name = bibliography.named(row.source)
    return f"\nsource: {texts.clipped(name, MOST_TEXT)}" if name else ""


def strip(row: Result) -> Text:
    """``───━●━─┃     ``: a line for the claimed side, the bound, the interval, its point."""
    text = Text(" ")
    positions = intervals.strip(row, with_control=False)
    if positions is None:
        return text.append(" " * STRIP_CELLS)
    last = STRIP_CELLS - 1

    def cell(position: float) -> int:
        return min(last, int(position * STRIP_CELLS))

    line, bar, point, bound = STRIP
    marks = [(" ", "")] * STRIP_CELLS

    def fill(span: intervals.Ends | None, mark: str, style: str) -> None:
        if span is not None:
            for at in range(cell(span[0]), cell(span[1]) + 1):
                marks[at] = (mark, style)

    fill(positions.claimed, line, "dim")
    fill(positions.span, bar, STYLES[row.verdict])
    limits = {cell(limit) for limit in positions.limits}
    for limit in limits:
        marks[limit] = (bound, "bold")
    if positions.point is not None:
        at = cell(positions.point)
        if at in limits:  # next to the bound, on its own side of it
            near = min(positions.limits, key=lambda limit: abs(limit - (positions.point or 0.0)))
            at = max(0, min(last, at + (1 if positions.point >= near else -1)))
        marks[at] = (point, STYLES[row.verdict])
    for mark, style in marks:
        text.append(mark, style=style)
    return text


def _claim(row: Result, judgement: str | None) -> Text:
    text = Text(visible(texts.clipped(row.name, MOST_TEXT)))
    shown_below = row.verdict is Verdict.NOT_APPLICABLE or row.counterexample is not None
    if row.reason and not shown_below:
        text.append("\n" + visible(texts.clipped(row.reason, MOST_TEXT)), "italic")
    if judgement:
        text.append("\n" + visible(texts.clipped(f"→ {judgement}", MOST_TEXT)), "cyan")
    return text


def _verdict(verdict: Verdict) -> Text:
    return Text(f"{SYMBOLS[verdict]} {verdict}", style=STYLES[verdict])


def _margin(row: Result) -> Text:
    """``+1.3 ██▌``: decades, and a bar as long as their absolute value."""
    text = Text(f" {visible(texts.decades(row)):>5} ")
    if row.margin is not None and not math.isnan(row.margin):
        filled = min(1.0, abs(row.margin) / BAR_DECADES) * BAR_CELLS
        whole, rest = divmod(round(filled * 8), 8)
        bar = "█" * whole + (EIGHTHS[rest] if rest else "")
        text.append(bar, style="green" if row.margin > 0 else "red")
    return text
