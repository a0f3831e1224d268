"""A fixed text, and its ids as a run records them: another version must give the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch is imported where ids are made: `assay compare` does without
    from assay.harness.models.subject import Subject
    from assay.harness.operations import tokens

KEY = "ids of a fixed text"
"""Key in a law's details: the record that `record` makes."""

LINES = (
    "The quick brown fox jumps over the lazy dog.",
    "She said: 'I don't know; it's we'll, they're, I'M, you'd've.'",
    "In 2023, 650841823 people paid $1,234.56 (or 3.14e-5 %).",
    "0 00 000 0000 12345678901234567890 1/2 ½ ² ٣٤٥ Ⅷ",
    "  two spaces,   three,    four\tand\t\ttabs ",
    "line\nline\n\nparagraph\r\nline\n \n  end\n",
    "non-breaking\u00a0space, ideographic\u3000space, zero\u200bwidth, thin\u2009space",
    "camelCase snake_case SCREAMING_CASE kebab-case eBay NaOH pH mL iPhone's",
    "def f(x: int) -> str:\n    return f'{x!r}'  # a comment\n",
    "if (a != b && c >= 10) { return a[i++] << 2; } // x == y ?",
    '<p class="a">1 &amp; 2</p> https://example.org/a?b=c&d=e#f user@example.org',
    "x .  y ,  z !  w ?  he 's  do n't",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Portez ce vieux whisky au juge blond qui fume: naïve, œuvre, Noël.",
    "decomposed: e\u0301te\u0301, n\u0303, o\u0308; composed: été, ñ, ö",
    "Pijamalı hasta yağız şoföre çabucak güvendi. İıIi",
    "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία. Σοφός ΣΟΦΟΣ",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "いろはにほへと ちりぬるを、カタカナ ﾊﾝｶｸ 漢字。",
    "天地玄黃，宇宙洪荒。簡体字和繁體字。",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "نص حكيم له سر قاطع وذو شأن عظيم مُحَمَّد ١٢٣",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה שָׁלוֹם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा क्ष त्र ज्ञ",
    "தமிழ் ภาษาไทย မြန်မာ ქართული հայերեն አማርኛ",
    "😀 👍🏽 👩\u200d👩\u200d👧 🇫🇷 ❤\ufe0f ☃ a😀b",
    "\ufeffﬁ ﬀ ™ … — – “quoted” ‘single’ «guillemets» \ufffd \x07 \x1b[0m",
    "ааааааа!!!!!!!!!!!??????..........----------==========##########",
    "▁ ▁▁ Ġ Ċ ## <0x0A> <unk> <pad>",
    "supercalifragilisticexpialidocious Donaudampfschifffahrtsgesellschaftskapitän",
)
"""Lines of many scripts, of numbers, code, spaces and signs.  A change of them is another text."""

WHOLE = "\n".join(LINES)
TEXT = hashlib.sha256(WHOLE.encode()).hexdigest()
"""The digest of the lines."""

EXCERPT = 24
"""Letters of a text that a message quotes."""


def ids(subject: Subject) -> list[tokens.Ids]:
    """The ids of each line, without special tokens."""
    from assay.harness.operations import tokens

    return [tokens.ids(subject, line) for line in LINES]


def record(subject: Subject) -> dict[str, Any]:
    """The ids of the fixed text for the evidence, with a digest.

    A line of ids, and of the letters at which their tokens begin (where the tokenizer says so),
    is a text of numbers.
    """
    from assay.harness.models.capabilities import probe
    from assay.harness.operations import tokens

    every = ids(subject)
    traced = "fast-tokenizer" in probe(subject)
    starts = [[s for _, s, _ in tokens.offsets(subject, line)] for line in LINES] if traced else []
    return {
        "text": TEXT,
        "digest": hashlib.sha256(repr(every).encode()).hexdigest(),
        "ids": [" ".join(map(str, line)) for line in every],
        "starts": [" ".join(map(str, line)) for line in starts],
    }


@dataclass(frozen=True)
class Change:
    """Where the ids of a fixed text begin to differ: the ``line``, from 0, a letter in it, and
    the next few ids before and after; and in how many ``lines`` they differ.
    """

    line: int
    letter: int
    before: list[int]
    after: list[int]
    lines: int

    @property
    def text(self) -> str:
        """The text where they begin to differ."""
        return LINES[self.line][self.letter : self.letter + EXCERPT]

    def __str__(self) -> str:
        place = f"from {self.text!r} on (line {self.line + 1})"
        return f"{place}: {self.before} → {self.after}; {self.lines} of {len(LINES)} lines differ"


def change(before: Any, after: Any) -> Change | None:
    """Where two records differ; None where they do not, or are of other texts or no records."""
    if not (_is_record(before) and _is_record(after)) or before["digest"] == after["digest"]:
        return None
    pairs = list(zip(map(_numbers, before["ids"]), map(_numbers, after["ids"]), strict=True))
    differing = [i for i, (one, other) in enumerate(pairs) if one != other]
    if not differing:
        return None
    line = differing[0]
    one, other = pairs[line]
    pairs_of_ids = enumerate(zip(one, other, strict=False))
    at = next((i for i, (a, b) in pairs_of_ids if a != b), min(len(one), len(other)))
    starts = [_numbers(each["starts"][line]) for each in (before, after) if each["starts"]]
    first = min((each[at] for each in starts if at < len(each)), default=0)
    return Change(line, first, one[at : at + 4], other[at : at + 4], len(differing))


def _is_record(record: Any) -> bool:
    """Whether this is a record of these lines, and not of those of another version of Assay."""
    return isinstance(record, Mapping) and record.get("text") == TEXT


def _numbers(line: str) -> list[int]:
    return [int(number) for number in line.split()]
