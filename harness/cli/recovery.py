"""Recovered prompts: how they are shown, row by row, and their JSON.

Wrong tokens are printed in ‹›, also without colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Literal

from rich.console import Console
from rich.status import Status
from rich.text import Text

from assay.harness.models.subject import Subject
from assay.harness.report import texts
from assay.harness.report.glyphs import Glyphs
from assay.harness.results.json_schema import Count, Name, Record, says, schema
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

# -- the JSON -------------------------------------------------------------------------------------

VERSION: Literal[1] = 1
"""Of the schema: raised when a key goes or changes its meaning, not for a new key."""

Ids = list[Count]
Seconds = Annotated[float, says("", ge=0)]


class Step(Record):
    """A step of a descent that is shown."""

    step: Annotated[Count, says("How many steps have been made.")]
    loss: Annotated[float | None, says("The distance then; null: not finite.")]
    ids: Annotated[Ids, says("Token ids by position.")]


class Recovery(Record):
    """One prompt, in the order given: texts first."""

    ids: Annotated[Ids, says("Token ids by position.")]
    text: Annotated[str, says("The prompt as text; ids where there is no tokenizer.")]
    found: Annotated[Ids, says("Token ids that were recovered, by position.")]
    found_text: Annotated[str, says("What was recovered, as text.")]
    recovered: Annotated[Count, says("Positions at which that token is the prompt's.")]
    verified: Annotated[
        list[bool],
        says("By position: whether what was recovered gives the given output, up to rounding."),
    ]
    distances: Annotated[
        list[float | None],
        says("By position: how far off that output is, relative; null: not finite."),
    ]
    tried: Annotated[
        list[Count],
        says(
            "By position: candidates of the vocabulary whose states were computed; 0 in a "
            "descent, and where not all states were given in order."
        ),
    ]
    passes: Annotated[
        Count, says("Passes of the model, over whole prompts or candidates; 0 in a descent.")
    ]
    equal: Annotated[
        list[Ids],
        says("By position: all tokens that give the same output, where there are several."),
    ]
    any_length: Annotated[
        bool, says("Whether any number of repetitions of the token ends in the same state.")
    ]
    seconds: Annotated[Seconds, says("Time without set-up.")]
    set_up: Annotated[Count, says("States computed before the search.")]
    set_up_seconds: Annotated[Seconds, says("Time that they took; 0 if kept from before.")]
    steps: Annotated[list[Step], says("Of a descent.")]
    top: Annotated[list[Ids], says("By position: tokens nearest to the end of a descent.")]
    notes: Annotated[list[str], says("What else to know, in sentences.")]

    @property
    def ok(self) -> bool:
        """Whether every token was recovered and verified."""
        return self.recovered == sum(self.verified) == len(self.ids)


class Descent(Record):
    """How the descent was made."""

    steps: Annotated[int, says("At most.", ge=1)]
    rate: Annotated[Seconds, says("Learning rate, in units of the embedding's scale.")]
    optimiser: Annotated[Name, says("Kind of step.")]
    distance: Annotated[Name, says("What the loss is.")]
    schedule: Annotated[Name, says("How the learning rate falls.")]
    decoder: Annotated[Name, says("From embeddings to tokens.")]
    start: Annotated[Name, says("Noise that it began from.")]
    seed: Annotated[Count, says("Of that noise.")]


class Recoveries(Record):
    """What `assay invert --json` writes."""

    schema: Annotated[Literal[1], says("Version of this schema.")]
    suite: Annotated[Name, says("Version of Assay.")]
    versions: Annotated[dict[str, str], says("Python and package versions.")]
    model: Annotated[Name, says("The model as it was named.")]
    digest: Annotated[str, says("SHA-256 of configuration and weights.")]
    vocabulary: Annotated[int, says("How many tokens there are.", ge=1)]
    device: Annotated[Name, says("Where it ran.")]
    dtype: Annotated[Name, says("In what it ran.")]
    attention: Annotated[Name, says("Attention implementation.")]
    depth: Annotated[Count, says("After how many blocks the output was taken.")]
    target: Annotated[Name, says("Which output was taken.")]
    given: Annotated[Name, says("What of it was given.")]
    method: Annotated[Name, says("How.")]
    descent: Annotated[Descent | None, says("Null: it was a search.")]
    ok: Annotated[bool, says("Whether every token was recovered and verified.")]
    prompts: Annotated[list[Recovery], says("The prompts.", min_length=1)]


SCHEMA = schema(Recoveries, "Prompts recovered by Assay")

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
        self.glyphs = Glyphs(console)
        self._widths: list[int] = []
        self._set_up_shown = False
        self._status: Status | None = None

    def say(self, line: str, style: str = "") -> None:
        """A line of text."""
        self._print(Text(self.glyphs.fit(line), style))

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
        spinner = "line" if self.glyphs.plain else "dots"
        with self.console.status(RECOVERING, spinner=spinner) as self._status:
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
        sign = self.glyphs.symbol(Verdict.UPHELD if ok else Verdict.REFUTED)
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
        padded = [Text(self.glyphs.fit(cell).rjust(width), style) for cell, width in columns]
        self._print(Text("  ").join([*padded, last]))

    def _marked(self, ids: Sequence[int], truth: Sequence[int]) -> Text:
        """The text of ``ids``; those that are not the prompt's are marked by signs and colour.

        A space before a token stays outside its signs.
        """
        opened, closed = ("<", ">") if self.glyphs.plain else ("‹", "›")
        text = Text()
        for piece, token, own in zip(pieces(self.subject, ids), ids, truth, strict=False):
            shown = self.glyphs.fit(piece)
            if token == own:
                text.append(shown)
                continue
            body = shown.lstrip(" ") or shown
            text.append(shown[: len(shown) - len(body)])
            text.append(f"{opened}{body}{closed}", WRONG)
        return text

    def _quoted(self, token: int) -> str:
        return self.glyphs.fit(f"'{pieces(self.subject, [token])[0]}'")

    def _print(self, line: Text) -> None:
        self.console.print(line, soft_wrap=True)


def agreeing(tokens: Sequence[int], prompt: Sequence[int]) -> int:
    """At how many positions two prompts have the same token."""
    return sum(one == other for one, other in zip(tokens, prompt, strict=True))


def _seconds(seconds: float) -> str:
    return f"{texts.number(seconds)} s" if seconds < 1 else texts.duration(seconds)
