"""The pytest plug-in: runs claims on models and passes on every result.

Claims run where pytest runs them, in worker processes too; a finished claim's result travels on
its report to the process that owns the terminal, which alone writes evidence and files
(`harness.plugin.recording`) and prints the results (`harness.plugin.display`).
`harness.plugin.settling` runs and judges one claim.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import torch
from hypothesis.configuration import set_hypothesis_home_dir

from assay.harness.checking import work
from assay.harness.checking.catalogue import is_asked, unknown
from assay.harness.checking.profiles import PROFILES
from assay.harness.models import capabilities
from assay.harness.models.loading.emulation import emulated
from assay.harness.models.machine import hanging
from assay.harness.models.machine.shortage import gpu_failure
from assay.harness.plugin import display, options, selection, together, toy
from assay.harness.plugin.budget import Budget
from assay.harness.plugin.display import Display
from assay.harness.plugin.interrupts import Interrupts
from assay.harness.plugin.recording import Recorder
from assay.harness.plugin.request import REQUEST, RunRequest
from assay.harness.plugin.settling import (
    ATTRIBUTE,
    BUDGETED,
    DONE,
    LAST,
    RULING,
    Assay,
    Ruling,
    claim_of,
    expected_of_models,
    name_of,
)
from assay.harness.results.encoding import decode, encode
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence_file import default_path
from assay.harness.results.specs import ModelKind, ModelSpec
from assay.harness.results.verdicts import Kind

MARKS = {
    "law": "follows from the architecture and must hold for every input",
    "finding": "is about particular weights and settled by draws",
    "toy": "is about networks that Assay builds itself, and runs once",
    selection.SLOW[Kind.LAW]: "compiles the model or starts processes: seconds for each example",
    selection.SLOW[Kind.FINDING]: "takes more draws to decide than the profile quick has",
}
"""The marks that claims bear: ``-m law`` runs laws only."""

COLLECTION_ERROR = pytest.StashKey[str]()
"""A worker's error at collection."""

STDERR = pytest.StashKey[int]()
"""A descriptor of standard error that pytest does not capture."""

HANGS = 6
"""Multiple of the profile's brake after which a process without a sign of progress ends."""

EMULATED = pytest.StashKey[ExitStack]()
"""Ends the emulation of another machine when it is closed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Assay's own options."""
    options.add(parser)
    together.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Reject bad options at once; start recording in the process that owns the terminal."""
    with options.usage_errors():
        request = config.stash[REQUEST] = options.read(config)
        config.stash[selection.FILES] = selection.files(config)
    config.pluginmanager.register(selection, "assay-selection")
    for kind, what in MARKS.items():
        config.addinivalue_line("markers", f"{kind}: {what}")
    # peft imports what torch deprecates, which nobody who checks a model can change.
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:torch.jit._script")
    _move_files_of_hypothesis()
    # The libraries' million objects stay: the collector need not scan them again.
    gc.freeze()
    config.stash[BUDGETED] = Budget(request.budget)
    config.stash[EMULATED] = ExitStack()
    # From now on, as models are loaded before the first test and shared by all tests.
    config.stash[EMULATED].enter_context(emulated(request.rounding, request.allocation))
    config.stash[STDERR] = os.dup(2)
    config.stash[EMULATED].callback(os.close, config.stash[STDERR])
    config.pluginmanager.register(Interrupts(bool(request.worker)), "assay-interrupts")
    if request.worker:
        torch.set_num_threads(1)  # workers share the cores among themselves
        return
    recorder = Recorder(config)
    config.pluginmanager.register(recorder, "assay-recorder")
    config.pluginmanager.register(Display(config, recorder), "assay-display")
    config.stash[DONE] = recorder.resumed


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the emulation of another machine."""
    if (stack := config.stash.get(EMULATED, None)) is not None:
        stack.close()


# -- before claims run ----------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that takes a ``subject`` on every requested model, a claim on toys once."""
    if "subject" in metafunc.fixturenames:
        specs = RunRequest.of(metafunc.config).models
        if getattr(getattr(metafunc.function, "claim", None), "toy", False):
            specs = (toy.spec_for(specs),)
        metafunc.parametrize("subject", specs, indirect=True, scope="session", ids=specs)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark claims by their kind."""
    if (claim := claim_of(item)) is not None:
        item.add_marker(claim.kind.value)
        if claim.toy:
            item.add_marker("toy")
        if claim.is_slow(name_of(item, claim)):
            item.add_marker(selection.SLOW[claim.kind])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Keep the requested claims, in order, and reject two tests with one name: evidence and
    expectations could not distinguish them.
    """
    config = session.config
    items += selection.from_outside(session, {item.path.resolve() for item in items})
    _check_expectations(config, items)
    _keep_apart(config, items)
    _keep_claims(config, items)
    _leave_out_slow(config, items)
    groups, cheap_first = together.lines(config), RunRequest.of(config).budget is not None
    variants = _variants(items)
    items.sort(key=lambda item: _turn(item, groups, cheap_first, variants.get(item, 0)))
    items_by_name: dict[tuple[str, str], pytest.Item] = {}
    for item in items:
        if (claim := claim_of(item)) is None:
            continue
        name = name_of(item, claim)
        other = items_by_name.setdefault((name, _subject(item)), item)
        if other is not item:
            why = f"{item.nodeid} and {other.nodeid} are both named {name!r}; name one otherwise"
            _reject(config, why)


def _reject(config: pytest.Config, why: str) -> None:
    """End the run at once; a worker's run ends when a test begins."""
    if not RunRequest.of(config).worker:
        raise pytest.UsageError(why)
    config.stash[COLLECTION_ERROR] = why


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute claims to workers by files and models, with ``--dist loadfile``."""
    if config.getoption("dist") != "loadfile":
        return None
    from assay.harness.plugin.scheduling import Grouped

    return Grouped(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """Keep the other tests of a worker that died, without the one that it died in.

    xdist would run that one again, and have it kill one worker after another; and a worker that
    gets a group without tests would wait for ever.
    """
    groups = getattr(sched, "workqueue", {})
    for group, tests in list(groups.items()):
        if crashitem in tests:
            tests[crashitem] = True
        if all(tests.values()):
            del groups[group]


def _move_files_of_hypothesis() -> None:
    """Let Hypothesis keep its files beside the evidence: by default in the current folder."""
    if "HYPOTHESIS_STORAGE_DIRECTORY" not in os.environ:
        with suppress(BadInput):  # there is no home
            set_hypothesis_home_dir(default_path().with_name("hypothesis"))


def _subject(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("subject", "") if callspec else ""


def _keep_apart(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect claims about models where the requested model is ``toy``, and claims about toys
    without it or an embedded reference: they say nothing about other models.  So with engines.
    """
    with_toys = toy.run_with(RunRequest.of(config).models)
    mixed = [
        item
        for item in items
        if (claim := claim_of(item))
        and (
            (not with_toys if claim.toy else toy.is_toy(_subject(item)))
            or claim.about_engines != is_engine(_subject(item))
        )
    ]
    if mixed:
        config.hook.pytest_deselected(items=mixed)
        items[:] = [item for item in items if item not in set(mixed)]


def is_engine(subject: str) -> bool:
    """Whether a subject is an engine, by its name."""
    return ModelSpec.recorded(subject).kind is ModelKind.ENGINE


def _variants(items: Sequence[pytest.Item]) -> dict[pytest.Item, int]:
    """For each claim's test, how many of the same claim come before it on the same subject."""
    counts: Counter[tuple[int, str]] = Counter()
    variants = {}
    for item in items:
        if (claim := claim_of(item)) is not None:
            variants[item] = counts[key := (id(claim), _subject(item))]
            counts[key] += 1
    return variants


def _turn(
    item: pytest.Item, groups: Sequence[str], cheap_first: bool, variant: int = 0
) -> tuple[int, ...]:
    """Laws come first, then findings.

    Slow laws come after other laws, and laws that take much (`checking.claim.Work`) after those
    that take less: of each kind the core laws, the first variant of others, then all ``variant``s.
    So a run that is stopped early has decided as much as possible.

    Findings share costly work with others of their file, and so stay with them unless the time is
    limited (``cheap_first``): then costly ones come last.
    """
    if (claim := claim_of(item)) is None:
        return (-1,)
    if claim.kind is Kind.LAW:
        return 0, bool(claim.slow), work.of(claim), min(variant, 1), not claim.core
    return 1, cheap_first and claim.costly, together.turn(item.nodeid, groups)


def _check_expectations(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reject expectations of unknown claims and capabilities: they are misspelt."""
    claims = {claim.id for item in items if (claim := claim_of(item))}
    if not claims or RunRequest.of(config).worker:
        return
    whole = selection.has_all_claims(config) and config.stash[selection.FILES] is None
    with options.usage_errors():
        for each in expected_of_models(config).values():
            for number in {id for id, _ in each.entries} - claims if whole else ():
                raise BadInput(f"{each.path}: no claim {number}; correct or remove it")
            for name in each.lacks.keys() - set(capabilities.names()):
                raise BadInput(f"{each.path}: there is no capability {name!r}")


def _keep_claims(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect claims that no ``--claim`` names."""
    requested = RunRequest.of(config).claims
    if not requested or not items:
        return
    named = [(claim.id, name_of(item, claim)) for item in items if (claim := claim_of(item))]
    if why := unknown(requested, named):
        _reject(config, f"--claim {why}")
        return
    # A test's whole name means that test alone, and not those whose names start with it.
    whole = {f"{id}:{name}" for id, name in named} & set(requested)
    selected = []
    for item in items:
        if (claim := claim_of(item)) is None:
            continue
        name = name_of(item, claim)
        parts = [each for each in requested if each not in whole]
        if f"{claim.id}:{name}" in whole or any(is_asked(each, claim.id, name) for each in parts):
            selected.append(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in set(selected)])
    items[:] = selected


def _leave_out_slow(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow claims in the short profiles, unless they are named."""
    slow = [item for item in items if any(map(item.get_closest_marker, selection.SLOW.values()))]
    if slow and selection.leaves_out_slow(config):
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A worker can report an error at collection only when a test runs."""
    if COLLECTION_ERROR in item.config.stash and claim_of(item) is not None:
        raise BadInput(item.config.stash[COLLECTION_ERROR])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Note whether a test is the last one on its subject."""
    item.stash[LAST] = nextitem is None or _subject(nextitem) != _subject(item)


# -- a claim --------------------------------------------------------------------------------------


@pytest.fixture
def assay(request: pytest.FixtureRequest) -> Assay:
    """Settles the verdict of a claim's test."""
    return Assay(request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """End a process whose claim hangs; not where a person may be using a debugger."""
    claim, config = claim_of(item), item.config
    if claim is None or claim.toy or config.getoption("usepdb") or config.getoption("trace"):
        return (yield)
    brake = PROFILES[RunRequest.of(config).profile].brake
    with hanging.ended_after(HANGS * brake, config.stash[STDERR]):
        return (yield)


# -- a claim's report -----------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the settled result to a claim's report, or the one line that ends the run.

    The run stops after a GPU has failed: later results of this process on it would be
    unreliable.
    """
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, BadInput) and claim_of(item) is not None:
        report.longrepr = str(error)
        report.refused = str(error)  # type: ignore[attr-defined]
    elif call.when == "call" and RULING in item.stash:
        setattr(report, ATTRIBUTE, item.stash[RULING])
    if (failure := gpu_failure()) and claim_of(item) is not None:
        report.gpu_failure = failure  # type: ignore[attr-defined]
        item.session.shouldstop = failure
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Write a claim's outcome as text: xdist sends plain types only."""
    content = yield
    if content and ATTRIBUTE in content:
        content[ATTRIBUTE] = encode(content[ATTRIBUTE])
    return content


@pytest.hookimpl(tryfirst=True)
def pytest_report_from_serializable(data: dict[str, Any]) -> None:
    """Read the outcome that a worker sent."""
    if ATTRIBUTE in data:
        data[ATTRIBUTE] = decode(data[ATTRIBUTE], Ruling)


def pytest_report_teststatus(
    report: pytest.TestReport, config: pytest.Config
) -> tuple[str, str, Any] | None:
    """Claims are counted by their verdicts."""
    return display.status(report, display.verbosity(config) > 0)
