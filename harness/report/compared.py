"""Shows a comparison of two runs in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.harness.comparison.changes import Flip
from assay.harness.comparison.judging import Compared, Comparison
from assay.harness.comparison.sides import ALL, Key, Side
from assay.harness.report.texts import counted, moment, number, shortened, visible
from assay.harness.results.verdicts import Result

MOST_ROWS = 25
"""The most rows of a table in a terminal; the JSON has all."""

MOST_NAME = 60

Cells = Callable[[Compared], list[str]]
"""The cells of a claim's row after its name."""

STYLES = {Flip.REGRESSION: "bold red", Flip.LOST: "yellow", Flip.GAINED: "green", Flip.OTHER: ""}
STYLES[Flip.UNSEEN] = "dim"


def headline(comparison: Comparison, least: float) -> str:
    """The comparison in a sentence."""
    regressions, lost = len(comparison.flips(Flip.REGRESSION)), len(comparison.flips(Flip.LOST))
    gained = len(comparison.flips(Flip.GAINED))
    drifts = len(comparison.drifts(least))
    texts = len(comparison.token_changes)
    parts = [counted(regressions, "regression") if regressions else "no regression"]
    parts += [f"{counted(texts, 'tokenizer')} changed"] * bool(texts)
    parts += [f"{lost} lost"] * bool(lost) + [f"{gained} gained"] * bool(gained)
    other = len(comparison.flips(Flip.OTHER))
    parts += [counted(other, "other flip")] * bool(other)
    unseen = len(comparison.flips(Flip.UNSEEN))
    parts += [f"{unseen} unseen"] * bool(unseen)
    parts += [counted(drifts, "drift") if drifts else "no drift"]
    return f"{', '.join(parts)} in {counted(len(comparison.claims), 'claim')}"


def vanished(comparison: Comparison) -> list[str]:
    """A line for each capability that a model lost, with the claims that needed it."""
    needing: dict[tuple[str, str], list[Compared]] = {}
    for each in comparison.flips(Flip.REGRESSION):
        if each.vanished:
            needing.setdefault((each.key[2], each.vanished), []).append(each)
    lines = []
    for (subject, name), claims in needing.items():
        why = visible(comparison.after.missing(subject)[name])
        ids = _listed(each.key[0] for each in claims)
        lines.append(f"{visible(subject)} no longer has `{name}`: {why} ({ids})")
    return lines


def notes(comparison: Comparison, least: float) -> list[str]:
    """Remarks, a line each."""
    lines = []
    for side in (comparison.before, comparison.after):
        if side.run.finished is None:
            lines.append(f"{side.name} did not finish")
        if side.others:
            rest = counted(side.others, "other finished run")
            lines.append(f"{side.name} holds {rest}, left out; {side.name}@{ALL} takes all")
    if unseen := [each.key[0] for each in comparison.flips(Flip.UNSEEN)]:
        laws = counted(len(unseen), "law")
        lines.append(
            f"{laws} broken by an example that the other run did not reach, so a "
            f"change is unknown (a larger --profile decides): {_listed(unseen)}"
        )
    lines += vanished(comparison)
    lines += [f"tokenizer of {each}" for each in comparison.token_changes]
    if not comparison.paired:
        lines.append(
            "the runs drew different inputs, so they are not paired and smaller drifts are missed"
        )
    if comparison.other_weights:
        which = _listed(comparison.other_weights)
        lines.append(f"weights or configuration differ under the same name: {which}")
    if restated := [each.key[0] for each in comparison.claims if each.restated]:
        lines.append(f"sentence or bound changed: {_listed(restated)}")
    small = len(comparison.drifts(0.0)) - len(comparison.drifts(least))
    if small:
        lines.append(
            f"{small} more moved significantly, but by less than {number(least)} (--least)"
        )
    if unjudged := [each.key[0] for each in comparison.claims if each.unjudged]:
        what = f"{counted(len(unjudged), 'number')} moved and cannot be judged"
        lines.append(f"{what}, as no sample was kept: {_listed(unjudged)}")
    for what, names in (("gone", comparison.gone_subjects), ("new", comparison.new_subjects)):
        if names:
            lines.append(f"{what}: {counted(len(names), 'model')}: {_listed(names)}")
    for what, keys in (("gone", comparison.gone), ("new", comparison.new)):
        if keys:
            lines.append(f"{what}: {counted(len(keys), 'claim')}: {_listed(map(_of, keys))}")
    return [visible(line) for line in lines]


def _of(key: Key) -> str:
    claim, name, subject = key
    return f"{claim} ({shortened(name, MOST_NAME)}) on {subject}"


def _listed(names: Iterable[str], most: int = 8) -> str:
    every = list(dict.fromkeys(names))
    rest = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + rest


def _value(value: Any) -> str:
    return "not said" if value is None else visible(str(value))


def show(console: Console, comparison: Comparison, least: float) -> None:
    """Print the comparison: changes in the environment, flips, drifts, and remarks."""
    for side, sign in ((comparison.before, "before"), (comparison.after, "after")):
        console.print(Text(f"{sign:<7} {_about(side)}"), soft_wrap=True)
    for name, pair in comparison.changed.items():
        console.print(Text(f"{name}: {' → '.join(map(_value, pair))}"))
    flips = [each for kind in Flip for each in comparison.flips(kind)]
    if flips:
        _print(console, _table("flip", "before", "after"), flips, _flip_cells)
    drifts = comparison.drifts(least)
    if drifts:
        columns = ("before", "after", "moved by", "interval")
        _print(console, _table(*columns), drifts, _drift_cells)
    if not (flips or drifts):
        console.print()
    for line in notes(comparison, least):
        console.print(Text(line), soft_wrap=True)  # a name must be whole to be copied
    bad = comparison.worse
    console.print(Text(headline(comparison, least), style="bold red" if bad else "bold"))


def _about(side: Side) -> str:
    run = side.run
    which = str(run.id)[:8] if side.runs == 1 else f"{side.runs} runs"
    parts = [f"{side.name}: {which}", moment(run.started)]
    settings = [(run.profile, "{}"), (run.seed, "seed {}"), (run.dtype, "{}")]
    parts += [form.format(value) for value, form in settings if value not in (None, "")]
    return visible(", ".join(parts))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim", no_wrap=True)
    table.add_column("", overflow="fold", ratio=1)
    for name in columns:
        table.add_column(
            name, justify="left" if name == "flip" else "right", no_wrap=name == "flip"
        )
    return table


def _print(console: Console, table: Table, claims: Sequence[Compared], numbers: Cells) -> None:
    for each in claims[:MOST_ROWS]:
        claim, name, subject = map(visible, each.key)
        named = f"{shortened(name, MOST_NAME)}\non {subject}"
        style = STYLES[each.flip] if each.flip else ""
        table.add_row(*map(Text, (claim, named, *numbers(each))), style=style)
    console.print(table)
    if len(claims) > MOST_ROWS:
        console.print(Text(f"and {len(claims) - MOST_ROWS} more (--json has them)"))


def _flip_cells(each: Compared) -> list[str]:
    rows = each.before, each.after
    return [each.flip or "", *(f"{row.verdict}\n{_number(each, row)}" for row in rows)]


def _drift_cells(each: Compared) -> list[str]:
    numbers = [_number(each, row) for row in (each.before, each.after)]
    moved = signed(each.shift.shift) if each.shift else "–"
    return [*numbers, moved, " to ".join(map(signed, each.interval or ()))]


def _number(each: Compared, row: Result) -> str:
    """A law's least margin, or a finding's observed value."""
    if each.law:
        return "–" if row.margin is None else f"{row.margin:+.2f} dec"
    return number(row.observed)


def signed(value: float | None) -> str:
    """``+0.12``, ``-3e-5``, ``0``."""
    text = number(value)
    return f"+{text}" if value is not None and value > 0 else text
