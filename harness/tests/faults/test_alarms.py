"""The count of false alarms: what is one, its rate, and a command that can be gone on with."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from assay.claims import test_cache as causality
from assay.claims import test_position_effects as positions
from assay.fixtures.kinds import KINDS
from assay.harness.cli import alarms as command
from assay.harness.cli.kills import Rooms
from assay.harness.faults import alarms
from assay.harness.models import runs
from assay.harness.models.runs import Options
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.expectation_files import load
from assay.harness.results.records import Selection, SubjectRecord
from assay.harness.results.specs import ModelSpec
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.runners.runner import Request

UPHELD, REFUTED, OPEN, NOT = (
    Verdict.UPHELD,
    Verdict.REFUTED,
    Verdict.INCONCLUSIVE,
    Verdict.NOT_APPLICABLE,
)
KNOWN = """model = "tiny:b"

[[claim]]
id = "C2"
verdict = "refuted"
reason = "a live defect"
"""
FAMILIES = {"first": "tiny:a", "second": "tiny:b"}


def result(verdict=UPHELD, subject="tiny:a:1", name="law", kind=Kind.LAW) -> Result:
    return Result("C2", name, kind, subject, verdict)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected" / "b.toml").write_text(KNOWN)
    return tmp_path


def tallied(folder: Path, *results: Result) -> alarms.Tally:
    return alarms.tally("bfloat16", results, load(folder / "expected"))


def test_a_refuted_law_is_an_alarm_unless_a_defect_of_the_model_s_type_is_known(folder):
    tally = tallied(folder, result(REFUTED), result(REFUTED, "tiny:b:1"), result(UPHELD, name="x"))
    assert [r.subject for r in tally.alarms] == ["tiny:a:1"]
    assert (tally.known, tally.checks, tally.rate, tally.models) == (1, 2, 0.5, 2)


def test_what_does_not_apply_or_is_not_decided_is_no_check(folder):
    tally = tallied(folder, result(NOT), result(OPEN), result(REFUTED, kind=Kind.FINDING))
    assert (tally.checks, len(tally.undecided), tally.alarms) == (0, 1, ())
    assert math.isnan(tally.rate)
    assert tally.interval == (0.0, 1.0)


def test_the_interval_is_clopper_and_pearson_s(folder):
    none = tallied(folder, *[result(name=str(i)) for i in range(100)])
    assert none.interval == (0.0, pytest.approx(1 - 0.025 ** (1 / 100)))
    some = tallied(folder, *[result(REFUTED if i < 3 else UPHELD) for i in range(100)])
    low, high = some.interval
    assert low == pytest.approx(0.0062, abs=1e-4)
    assert high == pytest.approx(0.0852, abs=1e-4)


def test_alarms_of_all_seeds_of_a_type_are_told_together():
    three = [result(subject=f"tiny:a:{seed}") for seed in (1, 2)] + [result(subject="tiny:b:1")]
    assert alarms.by_type(three) == [("tiny:a", "C2", "law", 2), ("tiny:b", "C2", "law", 1)]


class World:
    """A pytest that writes the verdicts it is told to, (model, dtype) by (model, dtype)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "alarms.sqlite"
        self.verdicts: dict[tuple[str, str], Verdict] = {}
        self.commands: list[list[str]] = []
        self.claims: list[ModuleType] = []
        self.code = 0

    def start(self, request: Request) -> int:
        self.commands.append(arguments := request.command)
        if self.code:
            return self.code
        options = dict(a[2:].split("=", 1) for a in arguments if a.startswith("--") and "=" in a)
        models = [a[8:] for a in arguments if a.startswith("--model=")]
        run = runs.describe_run(
            Options(dtype=options["dtype"]), options["profile"], int(options["seed"])
        )
        run.selection = Selection(keyword="", marker="law")
        run.subjects = {model: SubjectRecord(digest=model) for model in models}
        with Evidence.open(self.path) as evidence:
            evidence.begin(run)
            for model in models:
                verdict = self.verdicts.get((model, options["dtype"]), UPHELD)
                evidence.record(run.id, result(verdict, model), model)
            evidence.finish(run.id, 0)
        return 0

    def alarms(self, *arguments: str) -> int:
        rooms = Rooms(self.claims, self.folder / "expected", FAMILIES, lambda *_: None)
        options = ["--evidence", str(self.path), *arguments]
        return command.main(options, lambda: rooms, self.start)


@pytest.fixture
def world(folder):
    return World(folder)


def test_every_seed_is_run_in_every_dtype_and_only_once(world, capsys):
    assert world.alarms("--seeds", "2") == 0
    assert len(world.commands) == 6
    first = world.commands[0]
    assert "--model=tiny:a:1" in first
    assert "--model=tiny:b:1" in first
    assert {"--seed=1", "--dtype=float32", "--profile=glance", "--resume"} <= set(first)
    said = capsys.readouterr().out
    assert "| float32  |      4 |      4 |               0 | 0.00% |" in said
    assert world.alarms("--seeds", "3") == 0
    assert len(world.commands) == 9  # the third seed only


@pytest.mark.parametrize("model", KINDS.values())
def test_a_model_of_each_kind_is_made_from_each_seed(model):
    usual, spec = (ModelSpec.parse(name) for name in (model, command.of_seed(model, 3)))
    assert spec.seed == (None if model == "chat" else 3)
    assert replace(spec, seed=None) == usual
    assert spec.fault is None


def test_an_alarm_is_told_and_fails(world, capsys):
    world.verdicts["tiny:a:2", "bfloat16"] = REFUTED
    world.verdicts["tiny:b:1", "bfloat16"] = REFUTED
    assert world.alarms("--seeds", "2", "--dtype", "bfloat16") == 1
    said = capsys.readouterr().out
    assert "- tiny:a in bfloat16: C2 law" in said
    assert "tiny:b in" not in said  # known
    assert "| bfloat16 |      4 |      3 |               1 | 33.33% |" in said


def test_counting_runs_nothing(world, capsys):
    assert world.alarms("--seeds", "1") == 0
    before = len(world.commands)
    counted = capsys.readouterr().out
    assert world.alarms("--seeds", "1", "--count") == 0
    assert len(world.commands) == before
    assert capsys.readouterr().out == counted


def test_there_must_be_something_to_count(world):
    with pytest.raises(BadInput, match="no such file"):
        world.alarms("--count")
    assert not world.path.exists()
    world.alarms("--seeds", "1")
    with pytest.raises(BadInput, match="has no runs like these; leave --count out"):
        world.alarms("--count", "--profile", "thorough")


@pytest.mark.parametrize("claim", ["Z9", "A1", "C2:no such text"])
def test_a_claim_that_is_no_law_is_refused(world, claim):
    """A1 is a finding: alarms are of laws."""
    world.claims = [causality, positions]
    with pytest.raises(BadInput, match=f"--claim {claim}: there is no such law here; there are "):
        world.alarms("--claim", claim)
    assert world.commands == []
    assert not world.path.exists()


def test_a_claim_that_is_a_law_is_run(world):
    world.claims = [causality]
    world.alarms("--claim", "C2", "--seeds", "1", "--dtype", "float32")
    assert "--claim=C2" in world.commands[0]


def test_a_run_that_breaks_off_is_told_and_fails(world, capsys):
    world.code = 3
    assert world.alarms("--seeds", "1", "--dtype", "float32", "--family", "a") == 1
    assert "did not finish: seed 1, float32: " in capsys.readouterr().out
    assert [a for a in world.commands[0] if a.startswith("--model")] == ["--model=tiny:a:1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--family", "whales"], "no such family; there are first"),
        (["--seeds", "0"], "is not a whole number from 1 on"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
        (["--evidence", "."], "is a folder"),
    ],
)
def test_what_cannot_be_used_is_refused(world, arguments, said):
    with pytest.raises(BadInput) as refused:
        world.alarms(*arguments)
    assert said in str(refused.value)
