"""The scripts for maintainers run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.runners.runner import Request
from assay.harness.tests.support import false_positives, other_machines, record_capabilities


def test_capabilities_are_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_capabilities.main(["gpt2", "--record", str(tmp_path / "new.json")])
    printed = capsys.readouterr().out
    assert "| gpt2 | causal | GPT2LMHeadModel |" in printed
    assert "causal: 1 of 1 run" in printed
    types = json.loads((tmp_path / "new.json").read_text())["types"]
    assert "cache" in types["causal:gpt2"]


def test_false_positives_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [str(tmp_path / "new.sqlite"), "--seeds=1", "--family=gpt2", "--dtype=float32"]
    assert false_positives.main([*options, "--claim=C1"]) == 0
    assert "| float32 | 1 | 1 | 0 |" in capsys.readouterr().out
    assert false_positives.main([*options, "--claim=C1", "--leaks"]) == 0
    assert "| C1 " in capsys.readouterr().out


def test_verdicts_that_differ_on_another_machine_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def results(request: Request, broken: dict[str, str]) -> list[Result]:
        odd = "--emulate=allocation:odd" in request.pytest_arguments
        verdict = Verdict.REFUTED if odd else Verdict.UPHELD
        return [Result("C1", "a law", Kind.LAW, "tiny:gpt2", verdict)]

    assert other_machines.main(["tiny:gpt2", "--seeds=1"], results) == 1
    assert capsys.readouterr().out.count("a law: upheld, here refuted") == 2
