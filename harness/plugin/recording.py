"""Records results in the process that owns the terminal: evidence, resuming, files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from assay.harness.checking.sensitivity import GOALS
from assay.harness.models.loading import runs
from assay.harness.models.machine.devices import AUTO
from assay.harness.plugin import options, selection, toy
from assay.harness.plugin.request import DEFAULT, RunRequest, dtypes
from assay.harness.plugin.settling import RESUMED, Recorded, Ruling, claim_of, expected_of_models
from assay.harness.report import closing, html, summary, words
from assay.harness.results import expectation_files, expectations, outputs, schema
from assay.harness.results.encoding import encode
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence, resume_key
from assay.harness.results.records import SubjectRecord
from assay.harness.results.specs import ModelKind, ModelSpec
from assay.harness.results.verdicts import Result

STOPPED = (
    pytest.ExitCode.INTERRUPTED,
    pytest.ExitCode.INTERNAL_ERROR,
    pytest.ExitCode.USAGE_ERROR,
)
"""Exit codes of runs that did not finish."""

NARROWING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf")
"""Options of pytest's own that leave claims out."""


class Recorder:
    """A plug-in of pytest: one for each run, in the controlling process."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.request = config, RunRequest.of(config)
        described = runs.describe_run(
            self.request.loading, self.request.profile, self.request.seed
        )
        self.run = replace(described, **self.request.emulated)
        named = self.request.named or [DEFAULT]
        self.run.selection = selection.chosen(config, named, self.request.claims)
        kinds = {ModelSpec.recorded(model).kind for model in self.request.models}
        if self.request.loading.dtype == AUTO and ModelKind.CHECKPOINT in kinds:
            self.run.selection = replace(self.run.selection, dtype=AUTO)
        self.claims: dict[str, None] = {}
        self.results: list[Result] = []
        self._failure = ""
        self.judgements: dict[tuple[str, str], str] = {}
        self.resumed: Recorded = {}
        self.notes: list[str] = []
        self.problems: list[str] = []
        self._evidence: Evidence | None = None

    @property
    def total(self) -> int:
        """The number of claims."""
        return len(self.claims)

    # -- a run begins -------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Claims have been collected in this process."""
        if not session.config.option.collectonly:
            self._expect([item.nodeid for item in session.items if claim_of(item) is not None])

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """A worker has collected; its claims are the tests of files in claims/ or outside."""
        outside = {selection.path_of(self.config, each) for each in self.request.outside}
        files = {id: id.removeprefix("::").partition("::")[0] for id in ids}
        own = [i for i, file in files.items() if file.startswith("claims/") or file in outside]
        self._expect(own)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """An xdist worker is about to start: send it the recorded results."""
        self.run.threads = 1
        self._settle_dtype()
        if self.request.resume:
            self._open()
            rows = [(result, digest) for (*_, digest), result in self.resumed.items()]
            node.workerinput[RESUMED] = encode(rows)

    def _expect(self, claims: Sequence[str]) -> None:
        """Prepare for these claims, by their node ids."""
        if claims and not self.claims:
            self.claims.update(dict.fromkeys(claims))
            self._settle_dtype()
            self.notes += beyond_rounding(dtypes(self.config))
            self.notes += filter(None, [self.run.untested])
            with options.usage_errors():
                expected_of_models(self.config)
            self._open()
            self.run.per_subject = self._on_each(claims)

    def _settle_dtype(self) -> None:
        """Record in what the models compute, before a run to resume is looked for."""
        self.run.dtype = ", ".join(dtypes(self.config))

    def _on_each(self, claims: Sequence[str]) -> int:
        """How many of the claims there are on each model, without those on toys."""
        subjects = self.request.subjects
        on_models = [c for c in claims if not toy.is_toy(toy.subject_of(c, subjects))]
        return len(on_models) // max(1, sum(not toy.is_toy(each) for each in subjects))

    def _open(self) -> None:
        """Open the evidence, once; a replayed example writes none."""
        if self._evidence is not None or self.request.replay is not None:
            return
        with options.usage_errors():
            self._evidence = Evidence.open(self.request.evidence)
            if self.request.resume:
                self._resume(self._evidence)

    def _resume(self, evidence: Evidence) -> None:
        run_id = evidence.unfinished(resume_key(self.run))
        if run_id is None:
            self.notes.append(
                "nothing to resume: no unfinished run has this request; starting a new run"
            )
            return
        # The present selection decides when the run has finished.
        requested = self.run.selection
        self.run = next(run for run in evidence.runs() if run.id == run_id)
        self.run.selection = requested
        recorded = evidence.recorded(run_id)
        self.resumed |= {key: r for key, r in recorded.items() if not r.awaits_resuming}
        self.notes.append(
            f"resuming the run of {self.run.started}: {len(self.resumed)} claims are recorded"
        )

    # -- a claim ends -------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(
        self, report: pytest.TestReport
    ) -> Generator[None, object, object]:
        """A test has ended in some process; if it was a claim, record its result at once.

        The evidence has the result before the terminal shows it, so that a killed run has stored
        all that it reported.  A rejection ends the run after other plug-ins got the report.
        """
        if (ruling := Ruling.on(report)) is not None:
            self._expect([report.nodeid])  # a worker's, of a project's own file: not known before
            self.claims.setdefault(report.nodeid)
            self._end(ruling)
        self._failure = self._failure or getattr(report, "gpu_failure", "")
        outcome = yield
        if (why := getattr(report, "refused", None)) is not None:
            raise pytest.UsageError(why)
        return outcome

    def _end(self, ruling: Ruling) -> None:
        result, judgement = ruling.result, ruling.judgement
        # First the evidence: Ctrl-C may come while it is written.
        with options.usage_errors():
            self._keep(result, ruling.subject)
        self.results.append(result)
        if line := closing.judged(result, self.run):
            self.judgements[result.name, result.subject] = line
        elif judgement.fails and judgement.compared:
            self.judgements[result.name, result.subject] = f"unexpected: {judgement.message}"

    def _keep(self, result: Result, subject: SubjectRecord) -> None:
        subjects = self.run.subjects
        before = subjects.get(result.subject)
        if subject.is_short and before is not None and before.digest == subject.digest:
            subject = before  # another process, or the resumed run, may have described it in full
        new = before != subject or not self.results
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
        """Write the requested files, and close the evidence; then others write theirs.

        pytest writes JUnit's XML, for example.
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
        if stopped:  # perhaps before it reached all results of an earlier run
            shown = {(result.name, result.subject) for result in self.results}
            self.results += [r for r in self.resumed.values() if (r.name, r.subject) not in shown]
        if not self.results and (stopped or not self.total):
            return
        # A run that -x ended, or that lost a claim with a worker, can be resumed, too.
        missing = self.total - len(self.results)
        early = stopped or missing > 0
        self.problems += self._lacking()
        if missing > 0 and not stopped:
            self.problems.append(f"without a verdict: {missing} of {self.total} claims")
            if exitstatus == pytest.ExitCode.OK:  # as after --setup-plan
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif missing > 0:
            note = f"stopped: {missing} of {self.total} claims have no verdict"
            self.notes.append(note if self._evidence is None else f"{note}; --resume continues")
            if self._failure:
                self.problems.append(f"{self._failure}; --resume continues in a new process")
        if not early:
            self.run.finished = runs.now()
            self.problems += self._stale()
            if self.problems and exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            elif exitstatus == pytest.ExitCode.OK and words.none_examined(self.results):
                session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
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
        """The writers of the requested files and of the new expectations."""
        run, results = self.run, self.results
        if (path := self.request.json) is not None:
            yield lambda: schema.write_json(path, run, results)
        if (page := self.request.report) is not None:
            yield lambda: outputs.replace_file(page, html.render(run, results, self.judgements))
        if (summary_path := self.request.summary) is not None:
            yield lambda: summary.append(
                summary_path, summary.markdown(run, results, self.judgements)
            )
        if self.request.record_expectations and early:
            self.notes.append("expectations are not written: the run did not finish")
        elif self.request.record_expectations:
            yield self._record_expectations

    def _record_expectations(self) -> None:
        folder, request = self.request.expectations, self.request
        for subject in self.run.subjects:
            if toy.is_toy(subject) and subject not in request.models:
                continue  # its file comes with Assay, whichever models were requested
            dtype = self.run.dtype_of(subject)
            path = expectation_files.record(folder, subject, self.results, dtype)
            self.notes.append(f"expectations are written to {path}")
        try:
            expectation_files.load(folder)
        except BadInput as error:
            self.notes.append(f"before the next run: {error}")

    def _lacking(self) -> list[str]:
        """Capabilities that models lack and their types have; a note where none is recorded."""
        expected = expected_of_models(self.config)
        wrong: list[str] = []
        unjudged: dict[str, list[str]] = {}
        for name, subject in self.run.subjects.items():
            recorded, dtype = subject.recorded, self.run.dtype_of(name)
            lacks = expectations.Lacks(expected, name, recorded, dtype, self.results)
            wrong += lacks.unexpected
            self.notes += lacks.of_earlier_versions
            if subject.parameters and recorded.why:
                unjudged.setdefault(recorded.why, []).append(name)
        for why, names in unjudged.items():
            rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self.notes.append(f"capabilities of {names[0]}{rest} are not judged: {why}")
        return wrong

    def _stale(self) -> list[str]:
        """Expectations of claims that no longer exist; only a whole run can tell."""
        if not self._whole():
            return []
        expected = expected_of_models(self.config)
        mine = [expected[name] for name in self.run.subjects if name in expected]
        stale = [where for each in mine for where in each.unmatched(self.results)]
        return [f"{where}: this claim no longer exists; remove it" for where in stale]

    def _whole(self) -> bool:
        """Whether the run includes every claim."""
        narrowed = (self.config.getoption(name, None) for name in NARROWING)
        if self.request.claims or self.request.replay is not None or any(narrowed):
            return False
        return selection.has_all_claims(self.config)


def beyond_rounding(dtypes: Collection[str]) -> list[str]:
    """For each dtype of 16 bits, by name: a line on the faults that only float32 would show."""
    fine = GOALS[torch.float32].other
    return [
        f"{name}: laws need only see faults of {GOALS[dtype].one_shape:g} of a row, or of "
        f"{GOALS[dtype].other:g} where two passes differ in shape; with --dtype=float32 they see "
        f"{fine:g}"
        for name, dtype in (("float16", torch.float16), ("bfloat16", torch.bfloat16))
        if name in dtypes
    ]
