"""The pytest plug-in: runs claims on subjects and hands every result on.

Claims run where pytest runs them, in worker processes too; a finished claim's result travels on
its report to the process that owns the terminal, which alone writes evidence and files
(`harness.recording`) and shows what there is to see (`harness.display`).
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import hypothesis.errors
import pytest
import torch

from harness import display, expectations, options
from harness.display import Display
from harness.errors import BadInput
from harness.expectations import Expectations, Judgement
from harness.laws import Claim, Session
from harness.profiles import PROFILES
from harness.recording import RESUMED, Recorded, Recorder, Settled
from harness.runs import describe_subject
from harness.subject import Subject
from harness.verdicts import Result, Verdict

EXPECTED = pytest.StashKey[dict[str, Expectations]]()
DONE = pytest.StashKey[Recorded]()
DESCRIBED = pytest.StashKey[dict[str, dict[str, Any]]]()
SETTLED = pytest.StashKey[Settled]()
REFUSED = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Assay's own options."""
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse bad options at once; start recording in the process that owns the terminal."""
    with options.usage_errors():
        options.check(config)
        config.stash[EXPECTED] = expected = _expectations(config)
    # The libraries' million objects stay: they need not be looked through at every collection.
    gc.freeze()
    if is_worker(config):
        torch.set_num_threads(1)  # workers share the cores among themselves
        return
    recorder = Recorder(config, expected)
    config.pluginmanager.register(recorder, "assay-recorder")
    config.pluginmanager.register(Display(config, recorder), "assay-display")
    config.stash[DONE] = recorder.resumed


def is_worker(config: pytest.Config) -> bool:
    """Whether this process runs tests for another one (pytest-xdist)."""
    return hasattr(config, "workerinput")


def _expectations(config: pytest.Config) -> dict[str, Expectations]:
    try:
        return expectations.load(options.expectations_folder(config))
    except BadInput:
        # Entries that lack a reason are no hindrance to recording them anew.
        if config.option.record_expectations:
            return {}
        raise


# -- before claims run ----------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that takes a ``subject`` on every model asked for."""
    if "subject" in metafunc.fixturenames:
        specs = options.models(metafunc.config)
        metafunc.parametrize("subject", specs, indirect=True, scope="session", ids=specs)


def claim_of(item: pytest.Item) -> Claim | None:
    """The claim that a test is about, if it is."""
    return getattr(getattr(item, "obj", None), "claim", None)


def name_of(item: pytest.Item, claim: Claim) -> str:
    """The claim in words, with the test's own parameters: ``cached is recomputed [static]``."""
    callspec = getattr(item, "callspec", None)
    # The subject's is the first: see `pytest_generate_tests`.
    ids = [] if callspec is None else callspec._idlist["subject" in callspec.params :]
    return f"{claim.says} [{'-'.join(ids)}]" if ids else claim.says


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse two tests with one name: neither evidence nor expectations could tell them apart."""
    seen: dict[tuple[str, str], pytest.Item] = {}
    for item in items:
        if (claim := claim_of(item)) is None:
            continue
        name = name_of(item, claim)
        callspec = getattr(item, "callspec", None)
        subject = callspec.params.get("subject", "") if callspec else ""
        other = seen.setdefault((name, subject), item)
        if other is not item:
            why = f"{item.nodeid} and {other.nodeid} are both named {name!r}; name one otherwise"
            if not is_worker(config):
                raise pytest.UsageError(why)
            config.stash[REFUSED] = why


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a worker found at collection it can only say when a test runs."""
    if REFUSED in item.config.stash and claim_of(item) is not None:
        raise BadInput(item.config.stash[REFUSED])


# -- a claim --------------------------------------------------------------------------------------


@pytest.fixture
def assay(request: pytest.FixtureRequest) -> Assay:
    """What a claim's test hands its verdict to."""
    return Assay(request)


class Assay:
    """Settles one claim on one subject: run or resume it, hold it against what is expected."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.config, self.node = request.config, request.node

    @property
    def session(self) -> Session:
        """What the options say about laws."""
        option = self.config.option
        return Session(
            PROFILES[option.profile],
            seed=option.seed,
            replay=option.replay,
            derandomize=bool(os.environ.get("CI")),
        )

    def settle(self, claim: Claim, subject: Subject, run: Callable[[Session], Result]) -> None:
        """Run the claim, attach its result to the report, and pass, fail or skip by it."""
        __tracebackhide__ = True
        name = name_of(self.node, claim)
        result = self._recorded(name, subject)
        if result is None:
            result = self._with_command(replace(self._run(claim, subject, run), name=name))
        judgement = expectations.judge(result, self._expected(result))
        self.node.stash[SETTLED] = Settled(result, self._description(subject), judgement)
        self.node.user_properties.extend(_properties(result, judgement))
        if result.verdict is Verdict.NOT_APPLICABLE and judgement.ok:
            pytest.skip(f"missing capability: {result.reason}")
        if not judgement.ok:
            pytest.fail("\n".join([judgement.message, *_shown(result)]), pytrace=False)

    def _run(self, claim: Claim, subject: Subject, run: Callable[[Session], Result]) -> Result:
        if self.session.replay is None:
            return run(self.session)
        try:
            return run(self.session)
        except hypothesis.errors.DidNotReproduce as error:
            # Raised on its own where the example ran to its end; else while another is handled.
            if error.__context__ is None:
                why = "the replayed example keeps the law"
                return Result(
                    *(claim.id, claim.says, claim.kind, subject.name, Verdict.UPHELD),
                    examples=1,
                    reason=why,
                )
            raise BadInput(f"--replay: is no example of {claim.id}, {claim.says!r}") from error
        except hypothesis.errors.InvalidArgument as error:
            raise BadInput(f"--replay: {error}") from error

    def _with_command(self, result: Result) -> Result:
        # Of an example that is replayed Hypothesis does not say again what it is.
        seen, replayed = result.counterexample, self.config.option.replay
        if seen is not None and (blob := seen.pop("blob", None) or replayed):
            seen["replay"] = options.replay_command(
                self.node.nodeid, self.config, result.subject, blob
            )
        return result

    def _recorded(self, name: str, subject: Subject) -> Result | None:
        """What an unfinished run like this one has recorded already; nothing unless resuming."""
        if DONE not in self.config.stash:
            rows = json.loads(self.config.workerinput.get(RESUMED, "[]"))
            results = [(Result.from_json(row), digest) for row, digest in rows]
            self.config.stash[DONE] = {(r.name, r.subject, d): r for r, d in results}
        return self.config.stash[DONE].get((name, subject.name, subject.digest))

    def _expected(self, result: Result) -> expectations.Expected | None:
        mine = self.config.stash[EXPECTED].get(result.subject)
        return mine.expected(result.id, result.name) if mine else None

    def _description(self, subject: Subject) -> dict[str, Any]:
        known = self.config.stash.setdefault(DESCRIBED, {})
        if subject.name not in known:
            known[subject.name] = describe_subject(subject)
        return known[subject.name]


def _properties(result: Result, judgement: Judgement) -> list[tuple[str, str]]:
    """What JUnit's XML says of a claim, beside the test's outcome."""
    facts = {
        "claim": result.id,
        "subject": result.subject,
        "verdict": result.verdict.value,
        "expected": judgement.status,
        "observed": result.observed,
        "bound": result.bound,
        "margin": result.margin,
        "examples": result.examples,
        "reason": result.reason or None,
        "replay": (result.counterexample or {}).get("replay"),
    }
    return [(name, str(fact)) for name, fact in facts.items() if fact is not None]


def _shown(result: Result) -> list[str]:
    """A counterexample in lines: what was drawn, the numbers, and how to see it again."""
    if (seen := result.counterexample) is None:
        return []
    drawn = [f"{label}: {value}" for label, value in (seen.get("inputs") or {}).items()]
    numbers = f"observed {seen.get('observed')}, allowed {seen.get('allowed')}"
    again = [f"replay: {seen['replay']}"] if seen.get("replay") else []
    return [*drawn, f"{numbers}, at {seen.get('where')}", *again]


# -- a claim's report -----------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put on a claim's report what was settled, or the one line that ends the run."""
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, BadInput) and claim_of(item) is not None:
        report.longrepr = report.refused = str(error)
    elif call.when == "call" and SETTLED in item.stash:
        item.stash[SETTLED].attach(report)
    return report


def pytest_report_teststatus(
    report: pytest.TestReport, config: pytest.Config
) -> tuple[str, str, Any] | None:
    """Claims are counted by their verdicts."""
    return display.status(report, config.option.verbose > 0)
