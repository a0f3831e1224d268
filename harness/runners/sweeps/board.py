"""The display of a sweep: on a terminal a line per cell, elsewhere a line per change."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from assay.harness.report import texts
from assay.harness.report.glyphs import Glyphs
from assay.harness.runners.runner import BROKE, FAILED, HELD, Outcome
from assay.harness.runners.sweeps.plan import SweepCell

QUEUED, RUNNING = "queued", "running"
STYLES = {QUEUED: "dim", RUNNING: "cyan", HELD: "green", BROKE: "red", FAILED: "red"}


class Board:
    """The cells of a sweep with their states; a context manager."""

    def __init__(self, cells: Sequence[SweepCell], console: Console) -> None:
        self._console, self._glyphs = console, Glyphs(console)
        self._names = {cell.key: self._glyphs.fit(cell.name) for cell in cells}
        self._states = dict.fromkeys(self._names, QUEUED)
        self._notes = dict.fromkeys(self._names, "")
        # More cells than the terminal has lines would only scroll.
        fits = console.is_terminal and len(cells) < console.height - 2
        self._live = Live(console=console, auto_refresh=False) if fits else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            self._show()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def running(self, cell: SweepCell) -> None:
        """A cell has begun."""
        self._change(cell, RUNNING, "")

    def ended(self, cell: SweepCell, outcome: Outcome, *, stored: bool = False) -> None:
        """A cell has ended, or is ``stored`` in the evidence and need not run."""
        counts = [f"{amount} {verdict}" for verdict, amount in sorted(outcome.verdicts.items())]
        parts = [outcome.why, *counts]
        parts.append("known from before" if stored else texts.duration(outcome.seconds))
        self._change(cell, outcome.state, ", ".join(part for part in parts if part))

    def _change(self, cell: SweepCell, state: str, note: str) -> None:
        self._states[cell.key], self._notes[cell.key] = state, self._glyphs.fit(note)
        if self._live is not None:
            self._show()
            return
        done = sum(each not in (QUEUED, RUNNING) for each in self._states.values())
        words = f"[{done}/{len(self._states)}] {self._names[cell.key]}: {state}"
        line = Text(f"{words}, {self._notes[cell.key]}" if note else words)
        self._console.print(line, soft_wrap=True)

    def _show(self) -> None:
        table = Table(box=box.ASCII if self._glyphs.plain else box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("cell", overflow="fold")
        table.add_column("state", no_wrap=True)
        table.add_column("", overflow="fold")
        for key, name in self._names.items():
            state = self._states[key]
            table.add_row(Text(name), Text(state, STYLES[state]), Text(self._notes[key]))
        if self._live is not None:
            self._live.update(table, refresh=True)
