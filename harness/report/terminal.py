"""The table of verdicts in a terminal, and the counterexamples below it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from assay.harness.checking import significance
from assay.harness.report import closing, terminal_tables, texts, words
from assay.harness.report.terminal_tables import MOST_TEXT, ROOMY, STYLES
from assay.harness.report.texts import visible
from assay.harness.report.words import SYMBOLS, Judgements
from assay.harness.results.records import RunRecord, SubjectRecord
from assay.harness.results.verdicts import Counterexample, Result, Verdict

MOST_INPUT = 2000

SCREEN = 40
"""Of more claims that apply, only those that want attention have a row."""


def print_table(
    console: Console,
    run: RunRecord,
    results: Sequence[Result],
    judgements: Judgements | None = None,
    explain: bool = False,
    missing: int = 0,
    verbose: bool = False,
) -> None:
    """Print the run: a header, tables of laws and findings per subject, counterexamples.

    Of more than `SCREEN` claims that apply, those that are upheld share a line by number; laws
    that break at one place share a counterexample, and the library's known defects have none.
    With ``verbose`` each has its own.  ``judgements`` is keyed by (claim name, subject).  Claims
    that do not apply are one line per subject unless ``explain`` is true; then claims show their
    controls too.  ``missing`` claims of a run that was stopped have no verdict.
    """
    _print(console, _header(run, results), style="bold")
    groups = words.by_subject(run, results)
    applied = sum(each.verdict is not Verdict.NOT_APPLICABLE for each in results)
    brief = not (explain or verbose) and applied > SCREEN
    for subject, rows in groups.items():
        _print_subject(console, run, subject, rows, judgements or {}, explain, brief)
        _print_faults(console, rows, verbose)
    console.print()
    for line in closing.lines(run, results):
        _print(console, line)
    first = words.headline(results, run, missing)
    sentences = " ".join(filter(None, (first, words.of_findings(results))))
    _print(console, sentences, style="bold")
    if chance := significance.summary(results):
        _print(console, chance)
    counts = Text()
    for verdict, count in words.tally(results).items():
        if count:
            sign = f"{SYMBOLS[verdict]} {count} {verdict}   "
            counts.append(sign, style=STYLES[verdict])
    counts.rstrip()
    console.print(counts)


def _header(run: RunRecord, results: Sequence[Result]) -> str:
    names = list(words.by_subject(run, results)) or list(run.subjects)
    subjects = ", ".join(names) if len(names) <= 3 else texts.counted(len(names), "subject")
    parts: list[str | None] = [subjects, run.dtype, run.device, run.attention]
    parts += words.versions(run)
    parts.append(f"profile {run.profile}" if run.profile else None)
    return " · ".join(str(part) for part in parts if part)


def _print_subject(
    console: Console,
    run: RunRecord,
    subject: str,
    rows: list[Result],
    judgements: Judgements,
    explain: bool,
    brief: bool,
) -> None:
    console.print()
    record = run.subjects.get(subject) or SubjectRecord()
    facts = words.shape(record)
    title = Text.assemble((visible(subject), "bold"))
    console.print(title.append(visible(f"  {facts}" if facts else ""), "dim"))
    for line in words.not_honoured(record, explain):
        _print(console, line, style="yellow")
    if explain and (meaning := words.meant(record)):
        _print(console, meaning, style="dim")
    applied: list[Result] = []
    inapplicable: list[Result] = []
    for row in rows:  # one that should have applied stands with the others
        unexpected = judgements.get((row.name, row.subject))
        absent = row.verdict is Verdict.NOT_APPLICABLE and not unexpected
        (inapplicable if absent else applied).append(row)
    roomy = console.width >= ROOMY
    laws, findings = (
        _in_brief(console, each) if brief and each else each for each in words.by_kind(applied)
    )
    if laws:
        console.print(terminal_tables.laws(laws, judgements, roomy, explain))
    if laws and findings:
        console.print()
    if findings:
        console.print(terminal_tables.findings(findings, judgements, roomy, explain))
    if explain and inapplicable:
        _print_absent(console, inapplicable)


def _in_brief(console: Console, rows: list[Result]) -> list[Result]:
    """Print a line for each number; returns the rows that want attention."""
    console.print(terminal_tables.numbers(rows, console.width))
    console.print()
    return [row for row in rows if row.verdict is not Verdict.UPHELD and not row.left_out]


def _print_faults(console: Console, rows: list[Result], verbose: bool) -> None:
    """A counterexample for each fault, and its other laws in a line each."""
    if verbose:
        for row in rows:
            if row.counterexample is not None:
                _print_counterexample(console, row)
        return
    for fault in closing.faults(rows):
        first, *others = fault.rows
        if first.counterexample is not None:
            _print_counterexample(console, first)
        if others:
            console.print()
            count = texts.counted(len(others), "other law")
            verb = "breaks" if len(others) == 1 else "break"
            _print(console, f"{count} {verb} there (-v shows each):", "dim")
        for row in others:
            where = row.counterexample.where if row.counterexample else row.reason
            line = texts.clipped(f"  {row.id} {row.name}: {where}", MOST_TEXT)
            console.print(Text(visible(line), "dim"), overflow="fold")


def _print_absent(console: Console, rows: list[Result]) -> None:
    verb = "does" if len(rows) == 1 else "do"
    _print(console, f"{texts.counted(len(rows), 'claim')} {verb} not apply:", "dim")
    grid = Table.grid(padding=(0, 1, 0, 0))
    for row in rows:
        why = visible(texts.clipped(row.reason or "no reason given", MOST_TEXT))
        name = Text.assemble(visible(texts.clipped(row.name, MOST_TEXT)), ("\n" + why, "dim"))
        grid.add_row(Text(visible(row.id), style="bold"), name)
    console.print(grid)


def _print_counterexample(console: Console, row: Result) -> None:
    """The facts as a panel; below it the command on a line of its own, for copying."""
    example = words.counterexample(row)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", max_width=18)
    grid.add_column(overflow="fold")
    for label, value in _facts(example, row):
        text = visible(texts.clipped(value, MOST_INPUT), keep="\n")
        grid.add_row(visible(label), Text(text))
    title = visible(f"{row.id} on {row.subject}")
    panel = Panel(
        grid,
        title=Text(title, style=STYLES[row.verdict]),
        title_align="left",
        border_style=STYLES[row.verdict],
    )
    console.print()
    console.print(panel)
    if example.replay:
        console.print(Text("Replay it with", style="dim"))
        command = Text(visible(example.replay))
        console.print(command, soft_wrap=True, crop=False, overflow="ignore")


def _facts(example: Counterexample, row: Result) -> list[tuple[str, str]]:
    facts = [("claim", row.name)] if row.name else []
    if example.cause:
        facts.append(("what is wrong", example.cause))
    facts += example.inputs.items()
    if example.where:
        facts.append(("where", example.where))
    facts.append(("observed", texts.number(example.observed)))
    facts.append(("allowed", texts.number(example.allowed)))
    return facts


def _print(console: Console, line: str, style: str = "") -> None:
    console.print(Text(visible(line), style=style))
