"""Records results in the process that owns the terminal: evidence, resuming, files."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import pytest

from assay.harness.models import runs
from assay.harness.plugin import options, selection, toy
from assay.harness.plugin.request import DEFAULT, RunRequest
from assay.harness.plugin.settling import RESUMED, Recorded, Settled, claim_of, expected_of_models
from assay.harness.report import html, summary
from assay.harness.results import expectation_files, expectations, outputs, records, schema
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence, resume_key
from assay.harness.results.records import SubjectRecord
from assay.harness.results.verdicts import Result, Verdict

STOPPED = (
    pytest.ExitCode.INTERRUPTED,
    pytest.ExitCode.INTERNAL_ERROR,
    pytest.ExitCode.USAGE_ERROR,
)
"""Exit codes of runs that did not come to their end."""

NARROWING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf")
"""Options of pytest's own that leave claims out."""


class Recorder:
    """A plug-in of pytest: one for each run, in the controlling process."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.asked = config, RunRequest.of(config)
        self.run = runs.describe_run(self.asked.loading, self.asked.profile, self.asked.seed)
        self.run.tell(**self.asked.emulated)
        named = self.asked.named or [DEFAULT]
        self.run.selection = selection.chosen(config, named, self.asked.claims)
        self.claims: dict[str, None] = {}
        self.results: list[Result] = []
        self._ended: set[str] = set()
        self._failure = ""
        self.judgements: dict[tuple[str, str], str] = {}
        self.resumed: Recorded = {}
        self.notes: list[str] = []
        self.problems: list[str] = []
        self._evidence: Evidence | None = None

    @property
    def total(self) -> int:
        """How many claims there are."""
        return len(self.claims)

    @property
    def left(self) -> list[str]:
        """The names of the claims' tests that have not ended."""
        return [claim.partition("::")[2] for claim in self.claims if claim not in self._ended]

    # -- a run begins -------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Claims have been collected in this process."""
        if not session.config.option.collectonly:
            self._expect([item.nodeid for item in session.items if claim_of(item) is not None])

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """A worker has collected; its claims are the tests of files in claims/."""
        self._expect([i for i in ids if i.startswith("claims/")])

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """An xdist worker is about to start: it learns what is recorded already."""
        self.run.threads = 1
        if self.asked.resume:
            self._open()
            rows = [(result.as_json(), digest) for (*_, digest), result in self.resumed.items()]
            node.workerinput[RESUMED] = json.dumps(rows)

    def _expect(self, claims: Sequence[str]) -> None:
        """Make ready for these claims, by their node ids."""
        if claims and not self.claims:
            self.claims.update(dict.fromkeys(claims))
            with options.usage_errors():
                expected_of_models(self.config)
            self._open()
            self.run.per_subject = self._on_each(claims)

    def _on_each(self, claims: Sequence[str]) -> int:
        """How many of the claims there are on each model, without those on toys."""
        subjects = self.asked.subjects
        on_models = [c for c in claims if not toy.is_toy(toy.subject_of(c, subjects))]
        return len(on_models) // max(1, sum(not toy.is_toy(each) for each in subjects))

    def _open(self) -> None:
        """Open the evidence, once; a single example that is replayed is none."""
        if self._evidence is not None or self.asked.replay is not None:
            return
        with options.usage_errors():
            self._evidence = Evidence.open(self.asked.evidence)
            if self.asked.resume:
                self._resume(self._evidence)

    def _resume(self, evidence: Evidence) -> None:
        found = evidence.unfinished(resume_key(self.run))
        if found is None:
            self.notes.append(
                "nothing to resume: no unfinished run has this request; starting a new run"
            )
            return
        # What is asked for now decides when the run is at its end.
        asked = self.run.selection
        self.run = next(run for run in evidence.runs() if run.id == found)
        self.run.selection = asked
        self.resumed.update(evidence.recorded(found))
        self.notes.append(
            f"resuming the run of {self.run.started}: {len(self.resumed)} claims are recorded"
        )

    # -- a claim ends -------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(
        self, report: pytest.TestReport
    ) -> Generator[None, object, object]:
        """A test has ended somewhere; if it was a claim, its result is kept at once.

        The evidence has the result before the terminal shows it, so that a killed run has stored
        all that it reported.  A refusal ends the run after other plug-ins have seen the report.
        """
        if (settled := Settled.on(report)) is not None:
            self._end(settled)
            self._ended.add(report.nodeid)
        self._failure = self._failure or getattr(report, "gpu_failure", "")
        told = yield
        if (why := getattr(report, "refused", None)) is not None:
            raise pytest.UsageError(why)
        return told

    def _end(self, settled: Settled) -> None:
        result, judgement = settled.result, settled.judgement
        # First the evidence: Ctrl-C may come while it is written.
        with options.usage_errors():
            self._keep(result, settled.subject)
        self.results.append(result)
        if judgement.fails or result.verdict is Verdict.REFUTED:
            # What is expected has its reason; of what is undecided the result itself says why.
            told = f"{judgement.status}: {judgement.reason or judgement.message}"
            self.judgements[result.name, result.subject] = told

    def _keep(self, result: Result, subject: SubjectRecord) -> None:
        subjects = self.run.subjects
        new = subjects.get(result.subject) != subject or not self.results
        subjects[result.subject] = subject
        if self._evidence is not None:
            if new:
                self._evidence.begin(self.run)
            if (result.name, result.subject, subject.digest) not in self.resumed:
                self._evidence.record(self.run.id, result, subject.digest)

    # -- a run ends ---------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, object, object]:
        """Write what was asked for, and close the evidence; then others write their files.

        Such as JUnit's XML, which is written by pytest.
        """
        self._finish(session, exitstatus)
        try:
            return (yield)
        except OSError as error:
            self.problems.append(f"a file of pytest's: cannot be written ({error.strerror})")
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return None

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        stopped = exitstatus in STOPPED
        if stopped:  # perhaps before it came to all that an earlier run has recorded
            shown = {(result.name, result.subject) for result in self.results}
            self.results += [r for r in self.resumed.values() if (r.name, r.subject) not in shown]
        if not self.results and (stopped or not self.total):
            return
        # A run that -x ended, or that lost a claim with a worker, can be gone on with, too.
        missing = self.total - len(self.results)
        early = stopped or missing > 0
        self.problems += self._lacking()
        if missing > 0 and not stopped:
            self.problems.append(f"without a verdict: {missing} of {self.total} claims")
            if exitstatus == pytest.ExitCode.OK:  # as after --setup-plan
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif missing > 0:
            told = f"stopped: {missing} of {self.total} claims have no verdict"
            self.notes.append(told if self._evidence is None else f"{told}; --resume continues")
            if self._failure:
                undone = ", ".join(self.left)
                self.problems.append(f"{self._failure}; --resume continues in a new process")
                self.problems.append(f"without a verdict: {undone}")
        if not early:
            self.run.finished = runs.now()
            self.problems += self._stale()
            if self.problems and exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self.run.exit = int(session.exitstatus)
        written = [self._try(write) for write in self._files(early)]
        if not all(written):
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        if (evidence := self._evidence) is None:
            return
        # A run whose files could not be written is not over: it can be resumed, with other paths.
        if self.results and not early and all(written):
            run, exit = self.run.id, int(session.exitstatus)
            if not self._try(lambda: evidence.finish(run, exit)):
                session.exitstatus = pytest.ExitCode.USAGE_ERROR
        evidence.close()

    def _try(self, write: Callable[[], object]) -> bool:
        try:
            write()
        except BadInput as error:
            self.problems.append(str(error))
            return False
        return True

    def _files(self, early: bool) -> Iterator[Callable[[], object]]:
        """What is to be written: the results by their files, and what is expected from now on."""
        run, results = self.run, self.results
        if (path := self.asked.json) is not None:
            yield lambda: schema.write_json(path, run, results)
        if (page := self.asked.report) is not None:
            yield lambda: outputs.replace_file(page, html.render(run, results, self.judgements))
        if (told := self.asked.summary) is not None:
            yield lambda: summary.append(told, summary.markdown(run, results, self.judgements))
        if self.asked.record_expectations and early:
            self.notes.append("expectations are not written: the run did not finish")
        elif self.asked.record_expectations:
            yield self._record_expectations

    def _record_expectations(self) -> None:
        folder, asked = self.asked.expectations, self.asked
        for subject in self.run.subjects:
            if toy.is_toy(subject) and subject not in asked.models:
                continue  # its file comes with Assay and is no matter of the models asked for
            path = expectation_files.record(folder, subject, self.results, asked.loading.dtype)
            self.notes.append(f"expectations are written to {path}")
        try:
            expectation_files.load(folder)
        except BadInput as error:
            self.notes.append(f"before the next run: {error}")

    def _lacking(self) -> list[str]:
        """Capabilities that models lack and their types have; a note where nothing is recorded."""
        known, dtype = expected_of_models(self.config), self.asked.loading.dtype
        wrong: list[str] = []
        unjudged: dict[str, list[str]] = {}
        for name, subject in self.run.subjects.items():
            recorded = subject.recorded or records.Recorded()
            wrong += expectations.unexpected_lacks(known, name, recorded, dtype)
            if subject.parameters and recorded.why:
                unjudged.setdefault(recorded.why, []).append(name)
        for why, names in unjudged.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self.notes.append(f"capabilities of {names[0]}{more} are not judged: {why}")
        return wrong

    def _stale(self) -> list[str]:
        """Expectations of claims that are no longer there; only a whole run can tell."""
        if not self._whole():
            return []
        expected = expected_of_models(self.config)
        mine = [expected[name] for name in self.run.subjects if name in expected]
        stale = [where for each in mine for where in each.unmatched(self.results)]
        return [f"{where}: this claim no longer exists; remove it" for where in stale]

    def _whole(self) -> bool:
        """Whether every claim that there is has been asked for."""
        narrowed = (self.config.getoption(name, None) for name in NARROWING)
        if self.asked.claims or self.asked.replay is not None or any(narrowed):
            return False
        return selection.has_all_claims(self.config)
