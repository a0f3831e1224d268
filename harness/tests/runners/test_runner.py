"""Runs of claims in other processes, with programs in the place of their Python."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Counterexample, Kind, Result, Verdict
from assay.harness.runners import runner
from assay.harness.runners.runner import Broke, Request, Settings
from assay.harness.tests.support.evidences import run_of

LAW = Result("C2", "a law", Kind.LAW, "tiny:gpt2", Verdict.REFUTED)
UPHELD = replace(LAW, verdict=Verdict.UPHELD)
SETTINGS = Settings(claims=["C2"])


def request(folder: Path, script: str, **more: Any) -> Request:
    """A request whose Python is a script for a shell."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return Request(python=python, models=["tiny:gpt2"], settings=SETTINGS, patience=60.0, **more)


def writing(folder: Path, code: int, result: Result = LAW, before: str = "") -> str:
    """Writes the evidence of a run to where --evidence says, and ends with an exit code.

    ``before`` may end the script before the exit.
    """
    path, run = folder / f"{result.verdict}.sqlite", run_of("5.8.1", "tiny:gpt2")
    if not path.exists():
        with Evidence.open(path) as evidence:
            evidence.begin(run)
            evidence.record(run.id, result, "ab" * 32)
            evidence.finish(run.id, code)
    find = 'for a in "$@"; do case $a in --evidence=*) path=${a#--evidence=};; esac; done'
    return f'{find}\ncp "{path}" "$path"\n{before}\nexit {code}'


def test_an_example_that_broke_a_law_is_tried_where_the_law_seems_to_hold(tmp_path):
    replay = "pytest 'claims/cache/test_cache.py::t[tiny:gpt2]' --model=tiny:gpt2 --replay=AAEC=="
    refuted = replace(LAW, counterexample=Counterexample(replay=replay))
    broken: dict[str, str] = {}
    run_request = request(tmp_path, writing(tmp_path, 1, refuted))
    assert [result.verdict for result in runner.results(run_request, broken)] == [refuted.verdict]
    assert runner.run(run_request).state == runner.BROKE
    assert broken == {"a law": "AAEC=="}
    condition = """case "$*" in *"--claim=C2:a law "*"--replay=AAEC=="*) ;; *) exit 0;; esac"""
    script = f"{writing(tmp_path, 0, UPHELD, condition)}"
    again = writing(tmp_path, 1, refuted).partition("\n")[2]
    replayed = script.removesuffix("\nexit 0") + f"\n{again}"
    (result,) = runner.results(request(tmp_path, replayed), broken)
    assert result.verdict is Verdict.REFUTED
    (result,) = runner.results(request(tmp_path, writing(tmp_path, 0, UPHELD)), broken)
    assert result.verdict is Verdict.UPHELD


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo some words; echo 'ERROR: tiny:x: is broken'; exit 4", "tiny:x: is broken"),
        ("echo 'E   ImportError: no such name'; exit 4", "ImportError: no such name"),
        ("echo begun; kill -9 $$", "killed by SIGKILL"),
        ("exit 3", "exit code 3"),
        ("exit 5", "no claim was selected"),
        ("sleep 60", "did not end within 0.3 s"),
        ("exit 0", "exit code 0"),  # and no evidence
        ("echo 'ERROR: --claim Z9: there is no such claim'; exit 4", "--claim Z9"),
    ],
)
def test_a_run_that_breaks_is_one_line(tmp_path, script, why):
    run_request = dataclasses.replace(request(tmp_path, script), patience=0.3)
    expected = BadInput if "--claim" in why else Broke
    with pytest.raises(expected, match=why) as raised:
        runner.results(run_request, {})
    assert "\n" not in str(raised.value)


def test_an_earlier_run_in_the_same_evidence_is_not_this_one(tmp_path):
    path = tmp_path / "all.sqlite"
    run_request = request(tmp_path, writing(tmp_path, 0, UPHELD), evidence=path)
    assert runner.run(run_request).state == runner.HELD
    assert runner.run(request(tmp_path, "exit 0", evidence=path)).state == runner.FAILED
    kept = runner.last_outcome(path)
    assert kept is not None
    assert (kept.state, kept.verdicts) == (runner.HELD, {"upheld": 1})


def test_another_environment_does_not_get_this_ones_packages(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("CI", "1")
    variables = request(tmp_path, "", variables={"MORE": "x"}).environment
    assert variables["PYTHONPATH"] == str(runner.PACKAGE)
    assert "CI" not in variables
    assert variables["MORE"] == "x"


def test_what_a_run_prints_can_be_shown_or_kept(tmp_path, capfd):
    script = "echo printed; exit 3"
    log = tmp_path / "log"
    assert runner.run(request(tmp_path, script, log=log)).code == 3
    assert capfd.readouterr().out == ""
    assert log.read_text() == "printed\n"
    assert runner.run(request(tmp_path, script, show=sys.stdout)).code == 3
    assert capfd.readouterr().out == "printed\n"


def test_values_are_in_one_piece_and_only_what_is_set_is_given():
    arguments = Settings(claims=["C2:a b"], attends="causal", device_map="auto").arguments()
    assert {"--claim=C2:a b", "--attends=causal", "--device-map=auto", "--seed=0"} <= set(
        arguments
    )
    assert not [
        each for each in arguments if each.startswith(("--dtype", "--revision", "--trust"))
    ]


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ({}, True),
        ({"profile": "standard"}, False),
        ({"attends": "both"}, False),
        ({"selection": {"numbers": ["C3"], "keyword": "", "marker": ""}}, False),
        ({"device": "cuda:0 (a GPU)"}, False),
    ],
)
def test_a_recorded_run_matches_settings_if_all_that_matters_is_the_same(
    more: Mapping[str, Any], same: bool
) -> None:
    from assay.harness import __version__

    chosen = {"numbers": ["C2"], "keyword": "", "marker": ""}
    fields = {"suite": __version__, "selection": chosen, **more}
    run = run_of("5.8.1", "tiny:gpt2", **fields)
    assert SETTINGS.match(run, {"transformers": "5.8.1"}) is same
    assert not SETTINGS.match(run, {"transformers": "5.9.0"})
