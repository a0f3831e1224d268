"""Rows that are printed as they come, in columns that line up, and a live line below them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from assay.harness.report.glyphs import Glyphs

MUTED = "dim"

SPARE = 8
"""Columns that the live line leaves free: it must not become two."""


class Rows:
    """Columns of fixed ``widths`` (below 0: set to the right), and one that takes the rest.

    On a terminal the last column is folded.  Elsewhere it is as long as it is, for others to cut,
    and there is no live line.
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
        """For the length of a block there is a live line, where there can be one."""
        if not self.console.is_terminal or self.console.is_dumb_terminal:
            yield
            return
        self._spinner = Spinner("line" if self._glyphs.plain else "dots")
        with Live(self._spinner, console=self.console, transient=True):
            yield
        self._spinner = None

    def now(self, words: str) -> None:
        """What the live line is to say."""
        if self._spinner is not None:
            line = Text(self._glyphs.fit(words), MUTED)
            self._cut(line, self.console.width - SPARE)
            self._spinner.update(text=line)

    def _padded(self, cell: Text, width: int) -> Text:
        """``cell`` in exactly so many columns."""
        cell = cell.copy()
        self._cut(cell, abs(width))
        space = " " * (abs(width) - cell.cell_len)
        return Text.assemble(space, cell) if width < 0 else Text.assemble(cell, space)

    def _cut(self, text: Text, width: int) -> None:
        text.truncate(max(1, width), overflow="crop" if self._glyphs.plain else "ellipsis")
