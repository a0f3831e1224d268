"""What a run prints in the terminal: a live line, the table, and remarks."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from assay.harness.plugin import selection
from assay.harness.plugin.recording import Recorder
from assay.harness.plugin.settling import Ruling, claim_of
from assay.harness.report import terminal
from assay.harness.report.progress import Progress
from assay.harness.results.verdicts import Verdict

EXPECTED = "refuted as expected"
"""How a claim that is refuted as expected is counted."""

UNFORESEEN = "upheld against expectation"
"""How an upheld claim is counted that is expected to be refuted."""

COLOURS = {
    Verdict.UPHELD: "green",
    UNFORESEEN: "red",
    Verdict.REFUTED: "red",
    EXPECTED: "green",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_APPLICABLE: "cyan",
}


def status(report: pytest.TestReport, verbose: bool) -> tuple[str, str, Any] | None:
    """How pytest counts a claim's report, and (verbose) the word for it; None means as usual.

    Claims are counted by their verdicts, not as passed and failed tests.
    """
    if hasattr(report, "refused"):
        return "", "", ""  # printed once, when it ends the run
    if (ruling := Ruling.on(report)) is None:
        return None
    verdict: str = ruling.result.verdict
    if verdict == Verdict.REFUTED and ruling.judgement.ok:
        verdict = EXPECTED
    word = (verdict.upper(), {COLOURS[verdict]: True}) if verbose else ""
    if verdict == Verdict.UPHELD and ruling.judgement.fails:
        verdict = UNFORESEEN
    return verdict, "", word


def verbosity(config: pytest.Config) -> int:
    """How much to print: 0 by default, less with ``-q``, more with ``-v``.

    `assay check` runs pytest quietly, as its banners say nothing about a model.
    """
    level: int = config.option.verbose
    return level + bool(config.getini("plain"))


class Display:
    """A plug-in of pytest: shows what the recorder gathers."""

    def __init__(self, config: pytest.Config, recorder: Recorder) -> None:
        self.config, self.recorder = config, recorder
        self.reporter: Any = None
        self.progress = Progress()
        self._session: pytest.Session | None = None
        self._running = False
        self._named: dict[str, tuple[str, str]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Claims collected in this process are about to run."""
        for item in session.items:
            if (claim := claim_of(item)) is not None and isinstance(item, pytest.Function):
                subject = item.callspec.params.get("subject", "")
                self._named[item.nodeid] = claim.id, str(subject)
        self._start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        """Claims collected by a worker are about to run."""
        self._start()

    def _start(self, live: bool = True) -> None:
        self.reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if self._running or self.reporter is None or not self.recorder.total:
            return
        self._running = True
        self._print_notes()
        self.reporter.build_summary_stats_line = self._coloured(
            self.reporter.build_summary_stats_line
        )
        # Verbose pytest says more, quiet pytest says nothing.
        if live and verbosity(self.config) == 0:
            self.reporter.showfspath = False
            self.progress.start(self.recorder.total, Console(emoji=False))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins; under xdist its claim is unknown."""
        if nodeid in self._named:
            self.progress.begin(*self._named[nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has ended."""
        if (ruling := Ruling.on(report)) is not None:
            # Of a worker's claims in a project's own file, the first result is all that is known.
            self._start(live=False)
            self.progress.update(ruling.result)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Stop the live line before the summary."""
        self.progress.stop()
        self._session = session
        if not self._running and self.config.getini("plain"):  # a refusal is one line
            reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
            reporter.summary_stats = lambda: None
            if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
                reporter.write_line("no claim was selected")

    def pytest_terminal_summary(self) -> None:
        """The table of verdicts, and errors while files were written."""
        if not self._running:
            return
        if self.recorder.results:
            self.reporter.write(self._table())
        if left := sum(result.left_out for result in self.recorder.results):
            resumable = any(result.awaits_resuming for result in self.recorder.results)
            more = "; --resume examines those beyond the budget" if resumable else ""
            self.reporter.write_line(f"{left} claims were left out for lack of time{more}")
        if selection.leaves_out_slow(self.config) and selection.has_all_claims(self.config):
            self.reporter.write_line(
                "slow laws, and findings that need more draws, were left out: they need "
                "--profile=standard"
            )
        self._print_notes()
        for problem in self.recorder.problems:
            self.reporter.write_line(f"ERROR: {problem}", red=True)

    def _table(self) -> str:
        recorder = self.recorder
        buffer = io.BytesIO()
        # In the terminal's own encoding, which decides which signs can be drawn.
        file = io.TextIOWrapper(buffer, sys.stdout.encoding, "backslashreplace", newline="")
        console = Console(
            emoji=False,
            file=file,
            force_terminal=self.reporter.hasmarkup,
            width=shutil.get_terminal_size((100, 24)).columns,
        )
        terminal.print_table(
            console,
            recorder.run,
            recorder.results,
            recorder.judgements,
            explain=self.recorder.request.explain,
            missing=max(0, recorder.total - len(recorder.results)),
            verbose=verbosity(self.config) > 0,
        )
        file.flush()
        return buffer.getvalue().decode(file.encoding)

    def _print_notes(self) -> None:
        while self.recorder.notes:
            self.reporter.write_line(self.recorder.notes.pop(0))

    def _coloured(self, build: Callable[[], Any]) -> Callable[[], Any]:
        """Pytest's last line in colours that fit verdicts, which pytest colours as warnings."""

        def coloured() -> tuple[list[tuple[str, dict[str, bool]]], str]:
            parts, colour = build()
            names = [text.partition(" ")[2] for text, _ in parts]
            if colour == "yellow" and "no tests ran" not in names:
                good = self._session is not None and self._session.exitstatus == 0
                colour = "green" if good else "red"
            plain = self.config.getini("plain")
            left_out = ("deselected", "warning", "warnings") if plain else ()
            return [
                (text, {COLOURS[name]: True} if name in COLOURS else markup)
                for name, (text, markup) in zip(names, parts, strict=True)
                if name not in left_out
            ], colour

        return coloured
