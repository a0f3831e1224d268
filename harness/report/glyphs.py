"""Symbols and bars for a terminal: in Unicode, or their ASCII stand-ins."""

from __future__ import annotations

from rich.box import ASCII, ROUNDED, Box
from rich.console import Console

from assay.harness.report.texts import visible
from assay.harness.report.words import SYMBOLS
from assay.harness.results.verdicts import Verdict

_PLAIN_SYMBOLS = {
    Verdict.UPHELD: "+",
    Verdict.REFUTED: "x",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NOT_APPLICABLE: "-",
}

_STAND_INS = str.maketrans(
    {
        "…": "...", "–": "-", "—": "-", "·": "|", "×": "x", "→": "->", "≤": "<=", "≥": ">=",
        "∞": "inf", "±": "+-", "−": "-", "“": '"', "”": '"', "‘": "'", "’": "'", "π": "pi",
    }
)  # fmt: skip

_EIGHTHS = " ▏▎▍▌▋▊▉█"

_STRIP, _PLAIN_STRIP = ("─", "━", "●", "┃"), ("-", "=", "o", "|")


class Glyphs:
    """Fits text to the encoding of one console.

    ``plain`` is true where the console cannot encode the symbols; then every text that passes
    through `fit` is in that encoding, with escapes for what has no stand-in.
    """

    def __init__(self, console: Console) -> None:
        self.encoding = console.encoding
        try:
            ("".join(SYMBOLS.values()) + _EIGHTHS + "╭·→" + "".join(_STRIP)).encode(self.encoding)
        except UnicodeEncodeError:
            self.plain = True
        else:
            self.plain = False

    @property
    def box(self) -> Box:
        """The frame of a panel."""
        return ASCII if self.plain else ROUNDED

    @property
    def strip(self) -> tuple[str, str, str, str]:
        """Four characters: a line, an interval on it, its point, a bound across it."""
        return _PLAIN_STRIP if self.plain else _STRIP

    def fit(self, text: str, keep: str = "") -> str:
        """``text`` without control characters, in what the console can encode."""
        text = visible(text, keep)
        if not self.plain:
            return text
        text = text.translate(_STAND_INS)
        return text.encode(self.encoding, "backslashreplace").decode(self.encoding)

    def symbol(self, verdict: Verdict) -> str:
        """One character for a verdict."""
        return (_PLAIN_SYMBOLS if self.plain else SYMBOLS)[verdict]

    def bar(self, cells: float) -> str:
        """A bar ``cells`` long, in eighths of a cell where that can be shown."""
        if self.plain:
            return "#" * round(cells)
        whole, rest = divmod(round(cells * 8), 8)
        return "█" * whole + (_EIGHTHS[rest] if rest else "")
