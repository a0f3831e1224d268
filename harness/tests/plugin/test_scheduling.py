"""Which worker runs what: every claim once, and a model loaded once by a worker at most."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("xdist")

from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from assay.harness.checking import costs
from assay.harness.checking.costs import Cost
from assay.harness.plugin import hooks as plugin
from assay.harness.plugin import together
from assay.harness.plugin.request import REQUEST, RunRequest
from assay.harness.plugin.scheduling import BySubject
from assay.harness.results.verdicts import Kind
from assay.harness.tests.support.sessions import ROOT


class Worker:
    """A worker process as the scheduler sees it: told what to run, in this order."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.queue: list[int] = []
        self.ran: list[str] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    def loads(self) -> Counter[str]:
        """How often each model is loaded: it is kept until a test of another one comes."""
        tests = [test for test in self.ran if "[tiny:" in test]
        models = [test.partition("[")[2].removesuffix("]") for test in tests]
        return Counter(model for model, _ in itertools.groupby(models))


def scheduled(
    schedule: Any, workers: int, tests: list[str], seed: int = 0, dies: int | None = None
) -> list[Worker]:
    """The workers after a run in which they are done with tests in a random order.

    One worker ``dies`` when so many tests are done, and another takes its place.
    """
    nodes = [Worker(i) for i in range(workers)]
    for node in nodes:
        schedule.add_node(node)
        schedule.add_node_collection(node, tests)
    schedule.schedule()
    order, done = random.Random(seed), 0
    while waiting := [node for node in nodes if node.queue]:
        node = order.choice(waiting)
        if done == dies:
            dies = None
            crashed = schedule.remove_node(node)
            node.ran.append(crashed)
            node.queue.clear()
            heir = Worker(len(nodes))
            nodes.append(heir)
            schedule.add_node(heir)
            schedule.add_node_collection(heir, tests)
            schedule.schedule()
            continue
        index = node.queue.pop(0)
        node.ran.append(tests[index])
        schedule.mark_test_complete(node, index)
        done += 1
    return nodes


def config(workers: int) -> Any:
    """What xdist asks of pytest's configuration."""
    option = SimpleNamespace(
        loadscopereorder=True, tx=[f"{workers}*popen"], px=[], maxprocesses=None, verbose=0
    )
    return SimpleNamespace(option=option, getvalue=lambda name: getattr(option, name))


def ids(models: list[str]) -> list[str]:
    """As pytest collects them, all of one model, then the next; and some that are no claims."""
    claims = [
        f"claims/test_{file}.py::test_{test}[{model}]"
        for model in models
        for file in range(FILES)
        for test in range(4 + file)
    ]
    return [*claims, "harness/tests/test_x.py::test_a", "harness/tests/test_x.py::test_b[1]"]


FILES = 6
MANY = [f"tiny:{number}" for number in range(9)]


def by_model(workers: int, models: list[str], groups: Sequence[str] = ()) -> BySubject:
    return BySubject(config(workers), Producer("test", enabled=False), models, groups)


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("models", [MANY[:1], MANY[:3], MANY])
@pytest.mark.parametrize("seed", range(3))
def test_every_test_runs_once_and_a_worker_loads_a_model_once(workers, models, seed):
    tests = ids(models)
    nodes = scheduled(by_model(workers, models), workers, tests, seed)
    assert sorted(test for node in nodes for test in node.ran) == sorted(tests)
    assert all(count == 1 for node in nodes for count in node.loads().values())
    total = sum(len(node.loads()) for node in nodes)
    assert total <= len(models) + 2 * (workers - 1)


def test_by_files_alone_models_are_loaded_again_and_again():
    """What this is for: xdist's own schedule."""
    tests = ids(MANY)
    own = LoadFileScheduling(config(2), Producer("test", enabled=False))
    nodes = scheduled(own, 2, tests)
    assert sum(sum(node.loads().values()) for node in nodes) == FILES * len(MANY)


def test_claims_of_a_file_on_a_model_stay_together():
    nodes = scheduled(by_model(4, MANY), 4, ids(MANY))
    where = {}
    for node in nodes:
        for test in node.ran:
            unit = test.partition("::")[0], test.partition("[")[2]
            if unit[1].startswith("tiny"):
                assert where.setdefault(unit, node) is node


def test_the_files_of_a_model_come_in_the_order_of_the_collection():
    """Which has laws first; xdist alone would begin with the file of the most tests."""
    (node,) = scheduled(by_model(1, MANY[:1]), 1, ids(MANY[:1]))
    files = [test.partition("::")[0] for test in node.ran if test.startswith("claims")]
    assert files == sorted(files)


GROUPS = ("claims/test_4.py claims/test_1.py", "claims/test_3.py")


@pytest.mark.parametrize("seed", range(5))
def test_one_worker_runs_the_files_that_share_what_is_costly(seed):
    tests = ids(MANY[:1])
    nodes = scheduled(by_model(4, MANY[:1], GROUPS), 4, tests, seed)
    assert sorted(test for node in nodes for test in node.ran) == sorted(tests)
    shared = [node for node in nodes for test in node.ran if test[:16] in GROUPS[0]]
    assert len({id(node) for node in shared}) == 1


def test_groups_are_numbered_in_their_order():
    files = [f"claims/test_{number}.py::test_x[tiny:0]" for number in range(5)]
    assert [together.turn(test, GROUPS) for test in files] == [2, 0, 2, 1, 0]
    assert together.turn("claims/test_1.py", ()) == 0


def test_the_groups_of_the_suite_are_files_of_claims(pytestconfig):
    files = [file for group in together.lines(pytestconfig) for file in group.split()]
    assert files
    assert len(set(files)) == len(files)
    assert all((ROOT / file).is_file() for file in files)


def test_findings_of_groups_come_before_others_and_after_laws(pytestconfig):
    def item(file: str, kind: Kind) -> Any:
        obj = mock.Mock(claim=mock.Mock(kind=kind, says="says"))
        return mock.Mock(obj=obj, nodeid=f"claims/test_{file}.py::test_x", callspec=None)

    items = [
        *(item("0", Kind.FINDING), item("3", Kind.FINDING), item("1", Kind.FINDING)),
        *(item("2", Kind.LAW), item("4", Kind.LAW)),
    ]
    turns = sorted(items, key=lambda each: plugin._turn(each, GROUPS, False))
    assert [each.nodeid[12] for each in turns] == ["2", "4", "1", "3", "0"]


@pytest.mark.parametrize(
    ("kind", "cheap_first", "first"),
    [(Kind.LAW, False, "cheap"), (Kind.FINDING, False, "dear"), (Kind.FINDING, True, "cheap")],
)
def test_cheap_laws_come_first_and_findings_where_time_is_limited(
    monkeypatch, kind, cheap_first, first
):
    tokens = {"cheap": 10.0, "dear": 1000.0}
    known = {f"{kind.value}: {says}": Cost(1, each, 1, each, 0) for says, each in tokens.items()}
    monkeypatch.setattr(costs, "recorded", lambda: known)

    def item(says: str) -> Any:
        obj = mock.Mock(claim=mock.Mock(kind=kind, says=says))
        return mock.Mock(obj=obj, nodeid="claims/test_2.py::test_x", callspec=None)

    items = [item("dear"), item("cheap")]
    items.sort(key=lambda each: plugin._turn(each, GROUPS, cheap_first))
    assert items[0].obj.claim.says == first


@pytest.mark.parametrize("dies", [0, 1, 5, 60, 115, 118])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_worker_that_dies_takes_one_test_with_it_and_no_other(workers, dies):
    tests = ids(MANY[:3])
    nodes = scheduled(by_model(workers, MANY[:3]), workers, tests, dies=dies)
    assert len(nodes) == workers + 1
    assert sorted(test for node in nodes for test in node.ran) == sorted(tests)


def test_the_model_of_a_test_is_the_first_of_its_parameters():
    schedule = by_model(1, ["reference:small", "reference:small-1", "tiny:gpt2"])
    for parameters, model in (
        ("reference:small", "reference:small"),
        ("reference:small-1", "reference:small-1"),
        ("reference:small-1-static", "reference:small-1"),
        ("reference:small-static", "reference:small"),
        ("tiny:gpt2-reference:small", "tiny:gpt2"),
        ("static", ""),
    ):
        assert schedule._split_scope(f"a.py::b[{parameters}]") == f"a.py\n{model}"
    assert schedule._split_scope("a.py::b") == "a.py\n"


@pytest.mark.parametrize(
    ("dist", "models", "ours"),
    [
        ("loadfile", 1, True),
        ("load", 3, False),
        ("load", 4, True),
        ("worksteal", 9, True),
        ("each", 9, False),
        ("loadgroup", 9, False),
    ],
)
def test_the_users_own_schedule_stands_where_models_are_few_or_it_is_not_one_of_shares(
    dist, models, ours
):
    pytest_config = config(2)
    pytest_config.option.dist, pytest_config.option.tx = dist, ["popen"] * 2
    pytest_config.stash = {REQUEST: RunRequest(models=tuple(MANY[:models]))}
    pytest_config.getini, pytest_config.getoption = lambda name: [], pytest_config.getvalue
    made = plugin.pytest_xdist_make_scheduler(pytest_config, Producer("test", enabled=False))
    assert isinstance(made, BySubject) is ours
