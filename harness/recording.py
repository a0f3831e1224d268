"""What the process that owns the terminal does with results: evidence, progress, reports."""

from __future__ import annotations

import io
import json
import shutil
from typing import Any

import pytest
from rich.console import Console

from harness import expectations, options, runs, schema
from harness.errors import BadInput
from harness.evidence import Evidence, resume_key
from harness.report import html, terminal
from harness.report.progress import Progress
from harness.verdicts import Result


class Recorder:
    """A plug-in of pytest: one for each run, in the controlling process.

    Raises `BadInput` if the evidence file or a report's path cannot be used.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.option = config.option
        self.results: list[Result] = []
        self.judgements: dict[tuple[str, str], str] = {}
        self.resumed: dict[tuple[str, str, str], Result] = {}
        self.progress = Progress()
        self.evidence: Evidence | None = None
        self.run = runs.describe_run(
            options.loading(config), self.option.profile, self.option.seed
        )
        for path in (self.option.report, self.option.json_path):
            if path is not None:
                html.check_writable(path)

    # -- a run begins -------------------------------------------------------------------------

    def begin(self, claims: int) -> None:
        """Open the evidence and show that ``claims`` claims are about to run."""
        if self.evidence is not None or not claims:
            return
        self.evidence = Evidence.open(self.option.evidence)
        if self.option.resume and (found := self.evidence.unfinished(resume_key(self.run))):
            self.run = {**next(r for r in self.evidence.runs() if r["id"] == found)}
            self.resumed = self.evidence.recorded(found)
        self.evidence.begin(self.run)
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.showfspath = False
        self.progress.start(claims, Console())
        if self.resumed:
            self.progress.note(f"resuming: {len(self.resumed)} claims are recorded already")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Claims have been collected, in this process or (see below) in workers."""
        claims = [i for i in session.items if hasattr(getattr(i, "obj", None), "claim")]
        if session.config.option.collectonly:
            return
        try:
            self.begin(len(claims))
        except BadInput as error:
            raise pytest.UsageError(str(error)) from error

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """An xdist worker is about to start: it learns what is recorded already."""
        if self.option.resume:
            with Evidence.open(self.option.evidence) as evidence:
                if found := evidence.unfinished(resume_key(self.run)):
                    recorded = evidence.recorded(found).items()
                    rows = [(result.as_json(), key[2]) for key, result in recorded]
                    # Through JSON: execnet carries plain types only.
                    node.workerinput["assay-resumed"] = json.loads(json.dumps(rows))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """A worker has collected; claims are told from other tests by where they stand."""
        self.begin(sum(i.startswith("claims/") for i in ids))

    # -- a claim ends -------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has ended somewhere; if it was a claim, its result is kept at once."""
        found = dict(report.user_properties)
        if report.when != "call" or "assay-result" not in found:
            return
        result = Result.from_json(found["assay-result"])
        name, description = found["assay-subject"]
        status, message = found["assay-status"]
        self.results.append(result)
        if status != "as expected" or result.verdict == "refuted":
            self.judgements[result.id, result.subject] = f"{status}: {message}"
        if name not in self.run["subjects"]:
            self.run["subjects"][name] = description
            self._keep(lambda evidence: evidence.begin(self.run))
        self._keep(lambda evidence: evidence.record(self.run["id"], result, description["digest"]))
        self.progress.update(result)

    def _keep(self, write: Any) -> None:
        if self.evidence is None:
            return
        try:
            write(self.evidence)
        except BadInput as error:
            pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)

    # -- a run ends ---------------------------------------------------------------------------

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Close the evidence and write what was asked for."""
        self.progress.stop()
        if self.evidence is None:
            return
        self.run["exit"] = int(exitstatus)
        interrupted = exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR)
        if not interrupted:
            self.run["finished"] = runs.now()
            self._keep(lambda evidence: evidence.finish(self.run["id"], int(exitstatus)))
        self.evidence.close()
        try:
            if self.option.json_path is not None:
                schema.write_json(self.option.json_path, self.run, self.results)
            if self.option.report is not None:
                html.write_html(self.option.report, self.run, self.results, self.judgements)
            if self.option.record_expectations:
                folder = self.config.rootpath / "claims" / "expectations"
                for subject in self.run["subjects"]:
                    expectations.record(folder, subject, self.results)
        except BadInput as error:
            raise pytest.UsageError(str(error)) from error

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The table of verdicts."""
        if not self.results:
            return
        text = io.StringIO()
        console = Console(
            file=text,
            force_terminal=terminalreporter.hasmarkup,
            width=shutil.get_terminal_size((100, 24)).columns,
        )
        terminal.print_table(
            console, self.run, self.results, self.judgements, explain=self.option.explain
        )
        terminalreporter.write(text.getvalue())


RECORDER = pytest.StashKey[Recorder]()
