"""The live line of a run: finished claims by verdict, and the running one."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text

from assay.harness.report import intervals, texts, words
from assay.harness.report.terminal_tables import STYLES
from assay.harness.results.verdicts import Kind, Result, Verdict

SPARE = 8
"""Columns of the terminal that the live line leaves free."""


EVERY = 20
"""Off a terminal one of so many claims has a line that says how far the run is."""

QUIET = (Verdict.UPHELD, Verdict.NOT_APPLICABLE)
"""Verdicts of which the summary says enough."""


class Progress:
    """One live line on a terminal; elsewhere a short line for each claim that is not upheld, and
    for one in `EVERY` of the others.

    Driven by `start`, `begin`, `update` and `stop` from the process that owns the
    terminal.  Before `start` and after `stop` every call is harmless and shows nothing.
    """

    def __init__(self) -> None:
        self._console: Console | None = None
        self._live: RichProgress | None = None
        self._task = TaskID(0)
        self._stream: IO[str] | None = None
        self._counts = dict.fromkeys(Verdict, 0)
        self._total = 0

    def start(self, total: int, console: Console) -> None:
        """Start to show ``total`` claims on ``console``; a second start begins again."""
        self.stop()
        self._counts = dict.fromkeys(Verdict, 0)
        self._total = total
        self._console = console
        if console.is_terminal and not console.is_dumb_terminal:
            self._console = self._own(console)
            self._live = self._line(self._console)
        if self._live is not None:
            counts = self._counts_text()
            self._task = self._live.add_task("", total=total, counts=counts, now=Text(""))
            self._live.start()

    def begin(self, claim: str, subject: str) -> None:
        """Show which claim runs now, on which subject; silent off a terminal."""
        self._show(f"{claim} on {subject}")

    def update(self, result: Result) -> None:
        """Count one finished claim."""
        if self._console is None:
            return
        self._counts[result.verdict] += 1
        if self._live is None:
            done = sum(self._counts.values())
            if result.verdict in QUIET and done % EVERY and done < self._total:
                return
            self._console.print(Text(self._claim_line(result)), soft_wrap=True)
            return
        self._live.update(self._task, advance=1, counts=self._counts_text())
        self._show(f"{result.id} on {result.subject}")

    def stop(self) -> None:
        """Remove the live line and release the terminal; may be called at any time."""
        live, stream = self._live, self._stream
        self._live = self._stream = self._console = None
        # The terminal may be gone by now; then nobody reads an error.
        if live is not None:
            with suppress(OSError):
                live.stop()
        if stream is not None:
            with suppress(OSError):
                stream.close()

    def _own(self, console: Console) -> Console:
        """A console on a duplicate of the terminal's descriptor.

        While a test runs, pytest points descriptor 1 at its capture file: what the refreshing
        thread writes meanwhile would end up in the test's output.  The width is fixed, too, as
        rich would ask those descriptors for it; it leaves room for the letters that pytest may
        print after the line, which must not wrap.
        """
        try:
            descriptor = os.dup(console.file.fileno())
        except (OSError, ValueError, AttributeError):
            return console
        self._stream = os.fdopen(descriptor, "w", encoding=console.encoding)
        return Console(
            emoji=False,
            file=self._stream,
            force_terminal=True,
            color_system=console.color_system or None,  # type: ignore[arg-type]
            no_color=console.no_color,
            width=max(20, console.width - SPARE),
            legacy_windows=console.legacy_windows,
        )

    def _line(self, console: Console) -> RichProgress:
        now = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        return RichProgress(
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=12),
            _TextField("counts"),
            _TextField("now", now),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            expand=True,
        )

    def _show(self, text: str) -> None:
        if self._live is not None:
            self._live.update(self._task, now=Text(texts.visible(text), style="dim"))
            self._live.refresh()

    def _counts_text(self) -> Text:
        text = Text()
        for verdict, amount in self._counts.items():
            text.append(
                f"{words.SYMBOLS[verdict]} {amount} ", style=STYLES[verdict] if amount else "dim"
            )
        return text

    def _claim_line(self, result: Result) -> str:
        number = sum(self._counts.values())
        width = len(str(self._total))
        observed = intervals.together(result.observed, result.interval)
        parts = [
            f"[{number:>{width}}/{self._total}] {result.id} on {result.subject}",
            result.verdict.value,
            f"margin {texts.decades(result)}" if result.kind is Kind.LAW else observed,
            texts.duration(result.seconds),
        ]
        return texts.visible(", ".join(parts))


class _TextField(TextColumn):
    """A column that shows a `Text` kept in the task's fields, without reading markup in it."""

    def __init__(self, name: str, table_column: Column | None = None) -> None:
        super().__init__("", table_column=table_column or Column(no_wrap=True))
        self._name = name

    def render(self, task: object) -> Text:
        """The field as it is."""
        text: Text = task.fields[self._name]  # type: ignore[attr-defined]
        return text
