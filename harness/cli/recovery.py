"""Recovered prompts: how they are shown, row by row, and their JSON.

Wrong tokens are printed in ‹›, also without colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct
from rich.console import Console
from rich.status import Status
from rich.text import Text

from assay.harness.models.subject import Subject
from assay.harness.report import texts
from assay.harness.report.words import SYMBOLS
from assay.harness.results.verdicts import Verdict

BEFORE = 4
"""The most preceding tokens that a token's text depends on."""

BYTES = 4
"""The most bytes of a character, and tokens of one where each is a byte."""

BROKEN = "\N{REPLACEMENT CHARACTER}"
"""The text that tokenizers decode part of a character to."""

MUTED = "dim"
RIGHT, WRONG, DOUBTFUL = "green", "bold red", "yellow"

HEADS = {
    "exact": ("pass", "verified", "guess"),
    "token-by-token": ("position", "verified", "found"),
    "exhaustive": ("position", "verified", "found"),
    "descent": ("step", "loss", "recovered", "decoded"),
}
"""The columns that show a method's progress."""

RECOVERING = "recovering the prompt"

EQUALS = 3
"""How many of the tokens that give the same output are named."""

VERSION = 1
"""Of the JSON's schema: raised when a key goes or changes its meaning, not for a new key."""


class Step(Struct):
    """A step of a descent that is shown: how many have been made, and the distance then."""

    step: int
    loss: float
    ids: list[int]


class Recovery(Struct):
    """One prompt, in the order given, texts first; docs/schema.md says what each key means."""

    ids: list[int]
    text: str
    found: list[int]
    found_text: str
    recovered: int
    verified: list[bool]
    distances: list[float]
    tried: list[int]
    passes: int
    equal: list[list[int]]
    any_length: bool
    seconds: float
    set_up: int
    set_up_seconds: float
    steps: list[Step]
    top: list[list[int]]
    notes: list[str]

    @property
    def ok(self) -> bool:
        """Whether every token was recovered and verified."""
        return self.recovered == sum(self.verified) == len(self.ids)


# -- tokens as text -------------------------------------------------------------------------------


def pieces(subject: Subject, ids: Sequence[int]) -> list[str]:
    """The text that each token adds; ids with spaces where there is no tokenizer.

    Of tokens that make one character together, the last one has it.
    """
    if subject.tokenizer is None:
        return [f"{' ' if position else ''}{token}" for position, token in enumerate(ids)]
    parts: list[str] = []
    first = 0
    for position, token in enumerate(ids):
        start = max(0, first - BEFORE)
        before = _decoded(subject, ids[start:first])
        through = _decoded(subject, ids[start : position + 1])
        piece = through.removeprefix(before) if through.startswith(before) else ""
        if piece.endswith(BROKEN) and position + 1 < min(len(ids), first + BYTES):
            parts.append("")
            continue
        if piece.startswith(BROKEN) and position > first:
            parts[first:] = [BROKEN] * (position - first)
            piece = piece.lstrip(BROKEN) or BROKEN
        parts.append(piece or subject.tokens([token])[0])
        first = position + 1
    return parts


def _decoded(subject: Subject, ids: Sequence[int]) -> str:
    assert subject.tokenizer is not None
    text = subject.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
    return text if isinstance(text, str) else "".join(text)


# -- the display ----------------------------------------------------------------------------------


class Display:
    """Prints to ``console`` how prompts of ``subject`` are recovered."""

    def __init__(self, console: Console, subject: Subject) -> None:
        self.console, self.subject = console, subject
        self._widths: list[int] = []
        self._set_up_shown = False
        self._status: Status | None = None

    def say(self, line: str, style: str = "") -> None:
        """A line of text."""
        self._print(Text(texts.visible(line), style))

    @contextmanager
    def progress(self, ids: Sequence[int], method: str = "") -> Iterator[None]:
        """Print the prompt, and the heads of a ``method``'s columns.

        With a method `row` may be called within the block.
        """
        length = f"  ({texts.counted(len(ids), 'token')})"
        self.console.print()
        self._print(
            Text.assemble(("the prompt  ", MUTED), self._marked(ids, ids), (length, MUTED))
        )
        if method:
            number, *others, last = HEADS[method]
            counts = 2 * len(str(len(ids))) + 4  # such as "11 of 20"
            self._widths = [len(number) + 1, *(max(8, len(head), counts) for head in others)]
            self._row([number, *others], Text(last, MUTED), MUTED)
        with self.console.status(RECOVERING) as self._status:
            yield

    def state(self, words: str) -> None:
        """Say beside the spinner how far the search is."""
        if self._status is not None:
            self._status.update(f"{RECOVERING}: {words}")

    def row(self, ids: Sequence[int], tokens: Sequence[int], *cells: str) -> None:
        """The ``tokens`` so far for a prompt ``ids``, behind ``cells`` of the other columns."""
        self._row(cells, self._marked(tokens, ids))

    def end(self, outcome: Recovery) -> None:
        """Print the outcome: the nearest tokens, remarks, and a summary in one line."""
        if outcome.top:
            self.console.print()
            self.say("the nearest tokens at each position (* the prompt's own)", MUTED)
        for position, tokens in enumerate(outcome.top):
            own = outcome.ids[position]
            near = "  ".join(self._quoted(each) + " *" * (each == own) for each in tokens)
            self.say(f"{position + 1:6}  {near}")
        line = self._marked(outcome.found, outcome.ids)
        self._print(Text.assemble(("found       ", MUTED), line))
        for position in range(len(outcome.ids) if sum(outcome.tried) else 0):
            if remark := self._remark(outcome, position):
                token = self._quoted(outcome.found[position])
                self.say(f"position {position + 1}, {token}: {remark}", DOUBTFUL)
        for note in outcome.notes:
            if "not verified" not in note:  # the last line says how many
                self.say(f"note: {note}", MUTED)
        if outcome.any_length:
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
        verified = sum(sum(outcome.verified) for outcome in outcomes)
        share = "all" if verified == count else verified or "none"
        words = f"recovered {sum(outcome.recovered for outcome in outcomes)} of "
        words += texts.counted(count, "token")
        if len(outcomes) > 1:
            words += f" in {len(outcomes)} prompts"
        words += f", {share} verified"
        if ambiguous := sum(bool(equal) for outcome in outcomes for equal in outcome.equal):
            words += f", {ambiguous} ambiguous"
        words += f", in {_seconds(sum(outcome.seconds for outcome in outcomes))}"
        if passes := sum(outcome.passes for outcome in outcomes):
            words += f" and {passes} pass{'es' * (passes > 1)}"
        if tried := sum(sum(outcome.tried) for outcome in outcomes):
            part = texts.number(100 * tried / (count * vocabulary))
            words += f"; {tried} of {count * vocabulary} candidates tried ({part} %)"
        set_up = max(outcome.set_up for outcome in outcomes)
        if set_up and not self._set_up_shown:  # later prompts share it
            took = sum(outcome.set_up_seconds for outcome in outcomes)
            words += f"; set-up: {set_up} states in {_seconds(took)}"
            self._set_up_shown = True
        sign = SYMBOLS[Verdict.UPHELD if ok else Verdict.REFUTED]
        self.say(f"{sign} {words}", RIGHT if ok else WRONG)

    def _remark(self, outcome: Recovery, position: int) -> str:
        """What is wrong or ambiguous at ``position``."""
        token, own = outcome.found[position], outcome.ids[position]
        remark = []
        if not outcome.verified[position]:
            remark.append("differs by more than rounding")
        if token != own:
            remark.append(f"the prompt has {self._quoted(own)}")
        if equal := [other for other in outcome.equal[position] if other != token]:
            named = ", ".join(self._quoted(other) for other in equal[:EQUALS])
            more = f" and {len(equal) - EQUALS} more" if len(equal) > EQUALS else ""
            remark.append(f"the same output from {named}{more}")
        return "; ".join(remark)

    def _row(self, cells: Sequence[str], last: Text, style: str = "") -> None:
        """Cells in columns, aligned right, and a text of any length."""
        columns = zip(cells, self._widths, strict=True)
        padded = [Text(texts.visible(cell).rjust(width), style) for cell, width in columns]
        self._print(Text("  ").join([*padded, last]))

    def _marked(self, ids: Sequence[int], truth: Sequence[int]) -> Text:
        """The text of ``ids``; those that are not the prompt's are marked by signs and colour.

        A space before a token stays outside its signs.
        """
        text = Text()
        for piece, token, own in zip(pieces(self.subject, ids), ids, truth, strict=False):
            shown = texts.visible(piece)
            if token == own:
                text.append(shown)
                continue
            body = shown.lstrip(" ") or shown
            text.append(shown[: len(shown) - len(body)])
            text.append(f"‹{body}›", WRONG)
        return text

    def _quoted(self, token: int) -> str:
        return texts.visible(f"'{pieces(self.subject, [token])[0]}'")

    def _print(self, line: Text) -> None:
        self.console.print(line, soft_wrap=True)


def agreeing(tokens: Sequence[int], prompt: Sequence[int]) -> int:
    """At how many positions two prompts have the same token."""
    return sum(one == other for one, other in zip(tokens, prompt, strict=True))


def _seconds(seconds: float) -> str:
    return f"{texts.number(seconds)} s" if seconds < 1 else texts.duration(seconds)
