"""The table of verdicts in a terminal, and the counterexamples below it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import Box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness.report import texts, words
from harness.report.glyphs import Glyphs
from harness.verdicts import Result, Verdict

STYLES = {
    Verdict.UPHELD: "green",
    Verdict.REFUTED: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_APPLICABLE: "dim",
}

BAR_CELLS = 5
BAR_DECADES = 3.0
"""A margin of so many decades, or more, fills the bar."""

ROOMY = 104
"""From this width on, every number has its own column."""

MOST_INPUT = 2000
MOST_TEXT = 300

_RULE = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
_ASCII_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)

Judgements = Mapping[tuple[str, str], str]
"""What a verdict means for this run, by claim name and subject: ``expected: …``."""


def print_table(
    console: Console,
    run: dict[str, Any],
    results: Sequence[Result],
    judgements: Judgements | None = None,
    explain: bool = False,
) -> None:
    """Print the run: a header, a table per subject, and every counterexample.

    ``judgements`` is keyed by (claim name, subject).  Claims that do not apply are one line per
    subject unless ``explain`` is true.
    """
    glyphs = Glyphs(console)
    _print(console, glyphs, _header(run, results), style="bold")
    groups = words.by_subject(run, results)
    for subject, rows in groups.items():
        _print_subject(console, glyphs, run, subject, rows, judgements or {}, explain)
    console.print()
    _print(console, glyphs, words.headline(results), style="bold")
    told = Text()
    for verdict, count in words.tally(results).items():
        if count:
            sign = f"{glyphs.symbol(verdict)} {count} {verdict}   "
            told.append(sign, style=STYLES[verdict])
    told.rstrip()
    console.print(told)


def _header(run: dict[str, Any], results: Sequence[Result]) -> str:
    names = list(words.by_subject(run, results)) or list(run.get("subjects") or {})
    told = ", ".join(names) if len(names) <= 3 else texts.counted(len(names), "subject")
    parts = [told, run.get("dtype"), run.get("device"), run.get("attention")]
    parts += words.versions(run)
    parts.append(f"profile {run['profile']}" if run.get("profile") else None)
    return " · ".join(str(part) for part in parts if part)


def _print_subject(
    console: Console,
    glyphs: Glyphs,
    run: dict[str, Any],
    subject: str,
    rows: list[Result],
    judgements: Judgements,
    explain: bool,
) -> None:
    console.print()
    facts = words.shape((run.get("subjects") or {}).get(subject) or {})
    title = Text.assemble((glyphs.fit(subject), "bold"))
    console.print(title.append(glyphs.fit(f"  {facts}" if facts else ""), "dim"))
    applied = [row for row in rows if row.verdict is not Verdict.NOT_APPLICABLE]
    absent = [row for row in rows if row.verdict is Verdict.NOT_APPLICABLE]
    if applied:
        console.print(_table(glyphs, applied, judgements, console.width >= ROOMY))
    _print_absent(console, glyphs, absent, explain)
    for row in applied:
        if row.counterexample is not None:
            _print_counterexample(console, glyphs, row)


def _table(glyphs: Glyphs, rows: list[Result], judgements: Judgements, roomy: bool) -> Table:
    """One row per claim; where there is little room, its numbers stand below its margin."""
    table = Table(
        box=_ASCII_RULE if glyphs.plain else _RULE,
        padding=0,
        pad_edge=False,
        show_edge=False,
        header_style="dim",
    )
    table.add_column(no_wrap=True)
    table.add_column("claim", ratio=1)
    table.add_column("verdict", no_wrap=True)
    table.add_column(" margin" if roomy else " margin, numbers", no_wrap=True)
    for heading in ("observed", "allowed") if roomy else ():
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("tried", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for row in rows:
        observed, allowed = (glyphs.fit(texts.number(n)) for n in (row.observed, row.bound))
        margin = _margin(glyphs, row)
        if not roomy:
            margin.append(f"\n {observed} of {allowed}", style="dim")
        table.add_row(
            Text(glyphs.fit(row.id), style="bold"),
            _claim(glyphs, row, judgements.get((row.name, row.subject))),
            _verdict(glyphs, row.verdict),
            margin,
            *((observed, allowed) if roomy else ()),
            str(row.examples),
            glyphs.fit(texts.duration(row.seconds)),
        )
    return table


def _claim(glyphs: Glyphs, row: Result, judgement: str | None) -> Text:
    text = Text(glyphs.fit(texts.clipped(row.name, MOST_TEXT)))
    if row.reason and row.verdict in (Verdict.REFUTED, Verdict.INCONCLUSIVE):
        text.append("\n" + glyphs.fit(texts.clipped(row.reason, MOST_TEXT)), "italic")
    if judgement:
        text.append("\n" + glyphs.fit(texts.clipped(f"→ {judgement}", MOST_TEXT)), "cyan")
    return text


def _verdict(glyphs: Glyphs, verdict: Verdict) -> Text:
    return Text(f"{glyphs.symbol(verdict)} {verdict}", style=STYLES[verdict])


def _margin(glyphs: Glyphs, row: Result) -> Text:
    """``+1.3 ██▌``: decades and a bar as long as they are many, whichever their sign."""
    text = Text(f" {glyphs.fit(texts.decades(row)):>5} ")
    if row.margin is not None and not math.isnan(row.margin):
        filled = min(1.0, abs(row.margin) / BAR_DECADES) * BAR_CELLS
        text.append(glyphs.bar(filled), style="green" if row.margin > 0 else "red")
    return text


def _print_absent(console: Console, glyphs: Glyphs, rows: list[Result], explain: bool) -> None:
    if not rows:
        return
    verb = "does" if len(rows) == 1 else "do"
    line = f"{texts.counted(len(rows), 'claim')} {verb} not apply"
    _print(console, glyphs, f"{line}:" if explain else f"{line} (--explain says why)", "dim")
    if explain:
        grid = Table.grid(padding=(0, 1, 0, 0))
        for row in rows:
            why = glyphs.fit(texts.clipped(row.reason or "no reason given", MOST_TEXT))
            name = Text.assemble(
                glyphs.fit(texts.clipped(row.name, MOST_TEXT)), ("\n" + why, "dim")
            )
            grid.add_row(Text(glyphs.fit(row.id), style="bold"), name)
        console.print(grid)


def _print_counterexample(console: Console, glyphs: Glyphs, row: Result) -> None:
    """The facts as a panel; below it the command alone on its line, ready to be copied."""
    seen = row.counterexample or {}
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", max_width=18)
    grid.add_column(overflow="fold")
    for label, value in _facts(seen, row):
        text = glyphs.fit(texts.clipped(value, MOST_INPUT), keep="\n")
        grid.add_row(glyphs.fit(label), Text(text))
    title = glyphs.fit(f"{row.id} on {row.subject}")
    panel = Panel(
        grid,
        title=Text(title, style=STYLES[row.verdict]),
        title_align="left",
        box=glyphs.box,
        border_style=STYLES[row.verdict],
    )
    console.print()
    console.print(panel)
    if seen.get("replay"):
        console.print(Text("Replay it with", style="dim"))
        command = Text(glyphs.fit(texts.plain(seen["replay"])))
        console.print(command, soft_wrap=True, crop=False, overflow="ignore")


def _facts(seen: dict[str, Any], row: Result) -> list[tuple[str, str]]:
    facts = [("claim", row.name)] if row.name else []
    if seen.get("control"):
        facts.append(("control", words.CONTROL))
    facts += words.inputs(seen)
    if seen.get("where"):
        facts.append(("where", texts.plain(seen["where"])))
    facts.append(("observed", texts.size(seen.get("observed", row.observed))))
    facts.append(("allowed", texts.size(seen.get("allowed", row.bound))))
    return facts + words.unknown(seen)


def _print(console: Console, glyphs: Glyphs, line: str, style: str = "") -> None:
    console.print(Text(glyphs.fit(line), style=style))
