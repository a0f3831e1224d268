"""Runs in other environments, with programs in the place of their Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.runners import elsewhere
from assay.harness.runners.elsewhere import Broke
from assay.harness.runners.environments import Environment

ROW = Result("C2", "a law", Kind.LAW, "tiny:gpt2", Verdict.REFUTED).as_json()


def environment(folder: Path, script: str) -> Environment:
    """An environment whose Python is a script for a shell."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return Environment(python, {})


def writing(code: int, more: str = "", row: dict = ROW, end: str = "exit") -> str:
    """Writes a report to where --json says, and ends with an exit code."""
    report = json.dumps({"claims": [row]})
    return f"""
for argument in "$@"; do case $argument in --json=*) path=${{argument#--json=}};; esac; done
cat > "$path" <<'END'
{report}
END
{more}
{f"exit {code}" if end else ""}"""


@pytest.mark.parametrize("code", [0, 1])
def test_results_of_a_run_come_back(tmp_path, code):
    run = environment(tmp_path, writing(code))
    (result,) = elsewhere.results(run, ["--claim=C2"], {}, 60)
    assert (result.id, result.verdict) == ("C2", Verdict.REFUTED)


def test_an_example_that_broke_a_law_is_tried_where_the_law_seems_to_hold(tmp_path):
    replay = "pytest 'claims/test_cache.py::t[tiny:gpt2]' --model=tiny:gpt2 --replay=AAEC=="
    refuted = ROW | {"counterexample": {"replay": replay}}
    broken: dict[str, str] = {}
    elsewhere.results(environment(tmp_path, writing(1, row=refuted)), [], broken, 60)
    assert broken == {"a law": "AAEC=="}
    upheld = ROW | {"verdict": "upheld"}
    asked = """case "$*" in *"--claim=C2:a law "*"--replay=AAEC=="*) ;; *) exit 0;; esac"""
    replayed = f"{writing(0, row=upheld, more=asked, end='')}\n{writing(1, row=refuted)}"
    (result,) = elsewhere.results(environment(tmp_path, replayed), ["--claim=C2"], broken, 60)
    assert result.verdict is Verdict.REFUTED
    holds = environment(tmp_path, writing(0, row=upheld))
    (result,) = elsewhere.results(holds, ["--claim=C2"], broken, 60)
    assert result.verdict is Verdict.UPHELD


def test_an_example_that_is_none_in_another_version_says_nothing(tmp_path):
    refuse = """case "$*" in *--replay=*) echo 'ERROR: --replay: is no example'; exit 4;; esac"""
    script = f"{refuse}\n{writing(0, row=ROW | {'verdict': 'upheld'})}"
    (result,) = elsewhere.results(environment(tmp_path, script), [], {"a law": "AAEC=="}, 60)
    assert result.verdict is Verdict.UPHELD


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo some words; echo 'ERROR: tiny:x: is broken'; exit 4", "tiny:x: is broken"),
        ("echo 'E   ImportError: no such name'; exit 4", "ImportError: no such name"),
        ("echo begun; kill -9 $$", "killed by SIGKILL"),
        ("exit 3", "exit code 3"),
        ("sleep 60", "did not end within 0.3 s"),
        ("exit 0", "exit code 0"),  # and no report
    ],
)
def test_a_run_that_breaks_is_told_in_one_line(tmp_path, script, why):
    with pytest.raises(Broke, match=why) as raised:
        elsewhere.results(environment(tmp_path, script), [], {}, 0.3)
    assert "\n" not in str(raised.value)


def test_a_claim_that_is_not_there_is_bad_input(tmp_path):
    script = "echo 'ERROR: --claim Z9: there is no such claim here'; exit 4"
    with pytest.raises(BadInput, match="Z9"):
        elsewhere.results(environment(tmp_path, script), [], {}, 60)


def test_another_environment_is_not_told_of_this_ones_packages(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("CI", "1")
    assert not {"PYTHONPATH", "CI"} & set(elsewhere.variables())
    assert elsewhere.variables(MORE="x")["MORE"] == "x"


def test_what_a_run_says_can_go_elsewhere(tmp_path, capfd):
    says = [sys.executable, "-c", "print('said'); raise SystemExit(3)"]
    with (tmp_path / "output").open("w") as output:
        assert elsewhere.stream(says, output) == 3
    assert capfd.readouterr().out == ""
    assert (tmp_path / "output").read_text() == "said\n"
    assert elsewhere.stream(says) == 3
    assert capfd.readouterr().out == "said\n"
