"""Verdicts that depend on how a machine rounds: found by running again as others may."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assay.harness.cli import robust
from assay.harness.cli.main import check
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.runners import runner
from assay.harness.runners.runner import Broke, Rejected, Request, Settings
from assay.harness.tests.support.sessions import Project

FRAGILE = """
from assay.harness.operations import variants

@a_law("X1", "a copy gives the same bits")
def test_copy(subject, draw, check):
    copied = variants.saved_and_loaded(subject)
    ids = draw(prompts(subject), "prompt").ids
    check.judge(variants.share_that_differs(subject.rows(ids), copied.rows(ids)), 0.0, "a number")
    check.judge_control(1.0, 0.0)

@a_law("X2", "a pass gives the same bits again")
def test_again(subject, draw, check):
    ids = draw(prompts(subject), "prompt").ids
    check.judge(variants.share_that_differs(subject.rows(ids), subject.rows(ids)), 0.0, "a number")
    check.judge_control(1.0, 0.0)

"""
"""A law that rests on addresses, which no machine promises, and one that rests on nothing."""


def result(name: str, verdict: Verdict) -> Result:
    return Result("C1", name, Kind.LAW, "tiny:gpt2", verdict)


def nothing(model: str, claims: object) -> None:
    """Every model and claim is there."""


class World:
    """Runs that give what they are told to, by the machine's arguments and variables."""

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.requests: list[tuple[list[str], dict[str, str]]] = []

    def results(self, request: Request, broken: dict[str, str]) -> list[Result]:
        self.requests.append((request.command, dict(request.variables)))
        words = [*request.command, *(f"{k}={value}" for k, value in request.variables.items())]
        if "MKL_CBWR=AVX2" in words and "broke" in self.verdicts:
            raise Broke("killed by SIGKILL")
        verdict = next((v for word, v in self.verdicts.items() if word in words), Verdict.UPHELD)
        return [result("one", Verdict.UPHELD), result("two", verdict)]

    def run(self, *arguments: str) -> int:
        return robust.main(["--model=tiny:gpt2", *arguments], nothing, self.results)


def test_every_machine_is_tried_and_verdicts_that_agree_pass(capsys):
    world = World()
    assert world.run("--seeds=2", "--claim=C1", "--dtype=bfloat16", "--attends=both") == 0
    arguments, settings = zip(*world.requests, strict=True)
    assert "--rounding=0" not in arguments[0]
    assert [f"--rounding={seed}" in each for seed, each in enumerate(arguments[1:3])] == [True] * 2
    assert all("--allocation=odd" in each for each in arguments[1:4])
    assert {"--claim=C1", "--dtype=bfloat16", "--attends=both", "--profile=glance"} <= set(
        arguments[-1]
    )
    assert {"MKL_CBWR": "COMPATIBLE"} in settings
    assert [s["OMP_NUM_THREADS"] for s in settings if "OMP_NUM_THREADS" in s] == ["1", "2", "4"]
    assert "as it is: 2 decided, 0 otherwise" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["--rounding=3", "MKL_CBWR=AVX2", "OMP_NUM_THREADS=4"])
@pytest.mark.parametrize("verdict", [Verdict.REFUTED, Verdict.NOT_APPLICABLE])
def test_a_verdict_that_differs_on_one_machine_is_listed(word, verdict, capsys):
    world = World()
    world.verdicts[word] = verdict
    assert world.run() == 1
    assert capsys.readouterr().out.count(f"two: upheld, here {verdict.value}") == 1


def test_what_is_undecided_does_not_differ():
    world = World()
    world.verdicts["--rounding=3"] = Verdict.INCONCLUSIVE
    assert world.run() == 0


def test_a_claim_that_is_missing_differs():
    one = {"one": Verdict.UPHELD}
    assert [*robust.differences(one, {})] == ["one: upheld, here missing"]
    assert [*robust.differences({}, one)] == ["one: missing, here upheld"]


def test_a_run_that_breaks_is_listed_and_the_others_go_on(capsys):
    world = World()
    world.verdicts["broke"] = Verdict.UPHELD
    assert world.run("--seeds=0") == 1
    said = capsys.readouterr().out
    assert "MKL_CBWR=AVX2: its run broke (killed by SIGKILL)" in said
    assert "4 threads: 2 decided" in said


def test_what_the_first_run_rejects_is_bad_input() -> None:
    def rejected(request: Request, broken: dict[str, str]) -> list[Result]:
        raise Rejected("device 'gpu9': unknown")

    with pytest.raises(BadInput, match="gpu9"):
        robust.main(["--model=tiny:gpt2", "--device=gpu9"], nothing, rejected)


def test_a_law_that_rests_on_addresses_is_found(project: Project, monkeypatch, capsys):
    """Whatever this processor makes of addresses, emulated rounding tells by them."""
    project.claims(FRAGILE)
    monkeypatch.setattr(runner, "ROOT", project.folder)
    plain, *others = (
        {r.name: r.verdict for r in runner.results(request, {})}
        for request in (
            Request(
                python=Path(sys.executable),
                models=["tiny:gpt2"],
                settings=Settings(profile="glance"),
                pytest_arguments=more,
                patience=300,
            )
            for more in ([], ["--rounding=0"])
        )
    )
    differences = [*robust.differences(plain, others[0])]
    assert others[0]["a copy gives the same bits"] is Verdict.REFUTED
    if plain["a copy gives the same bits"] is Verdict.UPHELD:
        assert differences == ["a copy gives the same bits: upheld, here refuted"]
    assert plain["a pass gives the same bits again"] is Verdict.UPHELD
    assert not any("again" in line for line in differences)


def test_one_model_is_looked_at() -> None:
    with pytest.raises(BadInput, match=r"--model tiny:\*: stands for [0-9]+ models; name one"):
        check("tiny:*", ["C1"])
