"""Shows prompts while they are recovered: a line for each position or step, and the result.

A terminal gets one more line, a live one.  Wrong tokens are printed in ‹›, also without colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from assay.harness.cli.prompts import alone, pieces
from assay.harness.cli.recovery import DescentStep, Recovery, agreeing
from assay.harness.inversion.token_by_token import SearchResult
from assay.harness.models.subject import Subject
from assay.harness.report import texts
from assay.harness.report.glyphs import Glyphs
from assay.harness.results.verdicts import Verdict

MUTED = "dim"
RIGHT, WRONG, DOUBTFUL = "green", "bold red", "yellow"

WIDEST = 20
"""The most columns for a token."""

EQUALS = 3
"""How many of the tokens that give the same output are named."""

SPARE = 8
"""Columns that the live line leaves free, so that it does not wrap."""


class Columns:
    """Columns of fixed ``widths`` (below 0: aligned right), and one that takes the rest.

    On a terminal the last column is folded.  Elsewhere its length is not limited, and there is
    no live line.
    """

    def __init__(self, console: Console, widths: Sequence[int]) -> None:
        self.console, self.widths = console, widths
        self._glyphs = Glyphs(console)
        self._spinner: Spinner | None = None

    def add(self, *cells: Text) -> None:
        """Print a row; the last cell may be left out."""
        padded = [self._padded(*each) for each in zip(cells, self.widths, strict=False)]
        rest = list(cells[len(padded) :])
        if self.console.is_terminal and rest:
            grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
            for width in self.widths:
                grid.add_column(width=abs(width), no_wrap=True)
            grid.add_column(ratio=1, overflow="fold")
            grid.add_row(*padded, *rest)
            self.console.print(grid)
            return
        line = Text("  ").join([*padded, *rest])
        line.rstrip()
        self.console.print(line, soft_wrap=True)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show a live line within the block, on a terminal."""
        if not self.console.is_terminal or self.console.is_dumb_terminal:
            yield
            return
        self._spinner = Spinner("line" if self._glyphs.plain else "dots")
        with Live(self._spinner, console=self.console, transient=True):
            yield
        self._spinner = None

    def now(self, words: str) -> None:
        """Set the text of the live line."""
        if self._spinner is not None:
            line = Text(self._glyphs.fit(words), MUTED)
            self._cut(line, self.console.width - SPARE)
            self._spinner.update(text=line)

    def _padded(self, cell: Text, width: int) -> Text:
        """``cell`` in exactly ``width`` columns."""
        cell = cell.copy()
        self._cut(cell, abs(width))
        space = " " * (abs(width) - cell.cell_len)
        return Text.assemble(space, cell) if width < 0 else Text.assemble(cell, space)

    def _cut(self, text: Text, width: int) -> None:
        text.truncate(max(1, width), overflow="crop" if self._glyphs.plain else "ellipsis")


class PromptDisplay:
    """Prints to ``console`` how prompts of ``subject`` are recovered."""

    def __init__(self, console: Console, subject: Subject) -> None:
        self.console, self.subject = console, subject
        self.glyphs = Glyphs(console)
        self._signs = ("<", ">") if self.glyphs.plain else ("‹", "›")
        self._rows = Columns(console, [])
        self._set_up_shown = False

    # -- before and after ---------------------------------------------------------------------

    def say(self, line: str, style: str = "") -> None:
        """A line of text."""
        self.console.print(Text(self.glyphs.fit(line), style=style), soft_wrap=True)

    def begin(self, ids: Sequence[int]) -> None:
        """A prompt is about to be recovered."""
        length = f"  ({texts.counted(len(ids), 'token')})"
        line = Text.assemble(("the prompt  ", MUTED), self.marked(ids, ids), (length, MUTED))
        self.console.print()
        self.console.print(line, soft_wrap=True)

    def end(self, outcome: Recovery) -> None:
        """Print the outcome: the nearest tokens, notes, and a summary in one line."""
        if outcome.top:
            self._print_top(outcome)
        line = Text.assemble(("found       ", MUTED), self.marked(outcome.tokens, outcome.ids))
        self.console.print(line, soft_wrap=True)
        for note in outcome.inversion.notes:
            if "not verified" not in note:  # the last line says how many
                self.say(f"note: {note}", MUTED)
        if outcome.inversion.any_length:
            self.say("note: any number of these tokens ends in the same state", MUTED)
        self._sum_up([outcome])

    def total(self, outcomes: Sequence[Recovery]) -> None:
        """Print a summary of several prompts."""
        self.console.print()
        self._set_up_shown = False
        self._sum_up(outcomes)

    def _sum_up(self, outcomes: Sequence[Recovery]) -> None:
        vocabulary = self.subject.vocabulary
        ok = all(outcome.ok for outcome in outcomes)
        count = sum(len(outcome.ids) for outcome in outcomes)
        verified = sum(outcome.verified for outcome in outcomes)
        tried = sum(outcome.tried for outcome in outcomes)
        words = f"recovered {sum(outcome.recovered for outcome in outcomes)} of "
        words += texts.counted(count, "token")
        if len(outcomes) > 1:
            words += f" in {len(outcomes)} prompts"
        words += f", {_share(verified, count)} verified"
        if ambiguous := sum(len(outcome.inversion.others) for outcome in outcomes):
            words += f", {ambiguous} ambiguous"
        words += f", in {_seconds(sum(outcome.seconds for outcome in outcomes))}"
        if passes := sum(int(outcome.inversion.passes[0]) for outcome in outcomes):
            words += f" and {passes} pass{'es' * (passes > 1)}"
        if tried:
            part = texts.number(100 * tried / (count * vocabulary))
            words += f"; {tried} of {count * vocabulary} candidates tried ({part} %)"
        set_up = max(outcome.inversion.set_up for outcome in outcomes)
        if set_up and not self._set_up_shown:  # later prompts share it
            took = sum(outcome.inversion.set_up_seconds for outcome in outcomes)
            words += f"; set-up: {set_up} states in {_seconds(took)}"
            self._set_up_shown = True
        sign = self.glyphs.symbol(Verdict.UPHELD if ok else Verdict.REFUTED)
        self.say(f"{sign} {words}", RIGHT if ok else WRONG)

    # -- positions, one after another ---------------------------------------------------------

    @contextmanager
    def searching(self, ids: Sequence[int]) -> Iterator[None]:
        """`place` may be called within the block."""
        tried = len(str(self.subject.vocabulary))
        own = [cell_len(self.glyphs.fit(piece)) for piece in pieces(self.subject, ids)]
        token = min(WIDEST, max(5, *own) + 2)
        heads = ("position", "token", "tried", "off by")
        self._begin([-8, token, -(2 * tried + 4), -7], *heads)
        with self._rows.live():
            self._rows.now(f"position 1 of {len(ids)}")
            yield

    def place(self, ids: Sequence[int], position: int, search: SearchResult) -> None:
        """Print the token recovered at ``position``."""
        row = search.ids[0, : position + 1].tolist()
        right = bool(search.verified[0, position]) and row[position] == ids[position]
        self._rows.add(
            Text(str(position + 1)),
            self._marks(row, ids)[-1],
            Text(f"{int(search.tried[0, position])} of {self.subject.vocabulary}"),
            Text(texts.number(float(search.distances[0, position]))),
            Text(self._remark(ids, position, search), style=DOUBTFUL if right else WRONG),
        )
        if position + 1 < len(ids):
            text = "".join(pieces(self.subject, row))
            self._rows.now(f"position {position + 2} of {len(ids)}  {text}")

    def _remark(self, ids: Sequence[int], position: int, search: SearchResult) -> str:
        """What is wrong or ambiguous at ``position``."""
        token, remark = int(search.ids[0, position]), []
        if not bool(search.verified[0, position]):
            remark.append("differs by more than rounding")
        if token != ids[position]:
            remark.append(f"the prompt has {self._quoted(ids[position])}")
        if equal := [i for i in search.others.get((0, position), []) if i != token]:
            named = ", ".join(self._quoted(other) for other in equal[:EQUALS])
            more = f" and {len(equal) - EQUALS} more" if len(equal) > EQUALS else ""
            remark.append(f"the same output from {named}{more}")
        return "; ".join(remark)

    # -- whole prompts, pass by pass ----------------------------------------------------------

    @contextmanager
    def guessing(self, ids: Sequence[int]) -> Iterator[None]:
        """`guess` may be called within the block."""
        verified = -max(8, 2 * len(str(len(ids))) + 4)
        self._begin([-5, verified], "pass", "verified", "guess")
        with self._rows.live():
            self._rows.now("learning how the model's states depend on its tokens")
            yield

    def guess(self, ids: Sequence[int], search: SearchResult) -> None:
        """Print what the passes so far verified, and the guess after them."""
        passes = int(search.passes[0])
        verified = f"{int(search.verified[0].sum())} of {len(ids)}" if passes else ""
        guess = self.marked(search.ids[0].tolist(), ids)
        self._rows.add(Text(str(passes or "")), Text(verified), guess)

    def remarks(self, ids: Sequence[int], search: SearchResult) -> None:
        """Print a line for each position that is not verified, wrong, or ambiguous."""
        for position in range(len(ids)):
            if remark := self._remark(ids, position, search):
                token = self._quoted(int(search.ids[0, position]))
                self.say(f"position {position + 1}, {token}: {remark}", DOUBTFUL)

    # -- steps of a descent -------------------------------------------------------------------

    @contextmanager
    def descending(self, ids: Sequence[int]) -> Iterator[None]:
        """`step` and `now` may be called within the block."""
        recovered = -max(9, 2 * len(str(len(ids))) + 4)
        self._begin([-6, -8, recovered], "step", "loss", "recovered", "decoded")
        with self._rows.live():
            yield

    def step(self, ids: Sequence[int], step: DescentStep) -> None:
        """Print a step."""
        self._rows.add(
            Text(str(step.step)),
            Text(texts.number(step.loss)),
            Text(f"{agreeing(step.ids, ids)} of {len(ids)}"),
            self.marked(step.ids, ids),
        )

    def now(self, ids: Sequence[int], step: DescentStep, steps: int) -> None:
        """Show the present step in the live line."""
        progress = f"step {step.step} of {steps}  loss {texts.number(step.loss)}"
        self._rows.now(f"{progress}  {agreeing(step.ids, ids)} of {len(ids)}")

    def _print_top(self, outcome: Recovery) -> None:
        """A line for each rank, as in document 003's 'Approximate Token Mapping'."""
        columns = []
        for own, tokens in zip(outcome.ids, outcome.top, strict=True):
            cells = [Text(self._quoted(own), style="bold")]
            for token in tokens:
                right = token == own
                cells.append(Text(self._quoted(token) + " *" * right, RIGHT if right else ""))
            columns.append(cells)
        width = min(WIDEST, max(cell.cell_len for cells in columns for cell in cells))
        abreast = max(1, (self.console.width - 6) // (width + 2))
        self.console.print()
        self.say("the nearest tokens at each position (* the prompt's own)", MUTED)
        ranks = ["", *(str(rank + 1) for rank in range(len(outcome.top[0])))]
        for first in range(0, len(columns), abreast):
            some = columns[first : first + abreast]
            rows = Columns(self.console, [-4] + [width] * len(some))
            for rank, *cells in zip(ranks, *some, strict=True):
                rows.add(Text(rank, style=MUTED), *cells)
            self.console.print()

    # -- how it is drawn ----------------------------------------------------------------------

    def marked(self, ids: Sequence[int], truth: Sequence[int]) -> Text:
        """The text of ``ids``; those that are not the prompt's are marked by signs and colour."""
        return Text().join(self._marks(ids, truth))

    def _marks(self, ids: Sequence[int], truth: Sequence[int]) -> list[Text]:
        """The same, token by token; a space before a token stays outside its signs."""
        marks = []
        for piece, token, own in zip(pieces(self.subject, ids), ids, truth, strict=False):
            shown = self.glyphs.fit(piece)
            if token == own:
                marks.append(Text(shown))
                continue
            body = shown.lstrip(" ") or shown
            space = shown[: len(shown) - len(body)]
            opened, closed = self._signs
            marks.append(Text.assemble(space, (f"{opened}{body}{closed}", WRONG)))
        return marks

    def _begin(self, widths: list[int], *heads: str) -> None:
        """Start new columns, and print their heads."""
        self._rows = Columns(self.console, widths)
        self._rows.add(*(Text(head, style=MUTED) for head in heads))

    def _quoted(self, token: int) -> str:
        return self.glyphs.fit(f"'{alone(self.subject, token)}'")


def _share(part: int, whole: int) -> str:
    return "all" if part == whole else str(part) if part else "none"


def _seconds(seconds: float) -> str:
    return f"{texts.number(seconds)} s" if seconds < 1 else texts.duration(seconds)
