"""The action for GitHub, its steps run as a runner would on a tiny model; pre-commit's hook."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from assay.harness.cli.main import COMMANDS
from assay.harness.report import summary
from assay.harness.results.records import RunRecord, SubjectRecord
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.sessions import PACKAGE, ROOT, Project, law

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
INSTALL, CHECK = ACTION["runs"]["steps"]


def environment(**inputs: str) -> dict[str, str]:
    """The variables of a step, with what the workflow gave in place of the expressions."""
    values = {name: each.get("default", "") for name, each in ACTION["inputs"].items()} | inputs
    return {
        name: values[value.split(".")[1].split(" ")[0]] if value.startswith("${{") else value
        for name, value in CHECK["env"].items()
    }


def step(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the step that checks, with this Python as ``python``."""
    programs = folder / "bin"
    programs.mkdir()
    python = programs / "python"  # no link: by it Python would not find its packages
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    kept |= {"PATH": f"{programs}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": "summary.md"}
    kept["PYTHONPATH"] = str(PACKAGE)
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", CHECK["run"]],
        cwd=folder,
        env=kept | environment(**inputs) | {"XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.nightly
def test_a_sound_model_passes_and_is_summed_up(tmp_path: Path) -> None:
    (tmp_path / "summary.md").write_text("before\n")
    done = step(tmp_path, model="tiny:gpt2", options="--claim=C1 --profile=glance")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "summary.md").read_text()
    assert text.startswith("before\n### Assay: tiny:gpt2\n")
    assert "upheld" in text
    assert "<html" in (tmp_path / "assay-report.html").read_text()


def test_a_broken_model_fails_and_says_by_what(tmp_path: Path) -> None:
    options = "--claim=C1 --profile=glance"
    done = step(tmp_path, model="tiny:gpt2+future-seen-by-one", options=options)
    assert done.returncode == 1, done.stdout + done.stderr
    text = (tmp_path / "summary.md").read_text()
    assert "| refuted |" in text
    assert "Replay C1 with" in text


def test_what_is_installed_is_the_action_s_own_clone() -> None:
    assert INSTALL["run"] == 'python -m pip install "${GITHUB_ACTION_PATH}"'
    assert (ROOT / "pyproject.toml").is_file()


def test_the_hook_of_pre_commit_is_a_command_that_takes_no_file_names() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, command = hook["entry"].split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert program in project["scripts"]
    assert command in COMMANDS
    assert hook["pass_filenames"] is False


def test_no_input_is_read_as_a_command() -> None:
    assert "${{" not in CHECK["run"] + INSTALL["run"]


def test_nothing_that_a_model_is_called_is_read_as_markdown() -> None:
    name = "a|b <script> `x` [y](z) # t"
    result = Result("C1", "a law", Kind.LAW, name, Verdict.REFUTED, reason="*no*")
    run = RunRecord(profile="quick", subjects={name: SubjectRecord()})
    text = summary.markdown(run, [result], {})
    escaped = "a\\|b \\<script\\> \\`x\\` \\[y\\](z) \\# t"
    assert text.count(escaped) == 2
    assert name not in text
    assert "\\*no\\*" in text


def test_a_summary_is_on_no_other_output(project: Project) -> None:
    project.claims(law(1))
    assert project.run("--report=x", "--json=x").refused("--report", "--json")


@pytest.mark.parametrize("where", ["folder", "/dev/full"])
def test_a_summary_that_cannot_be_written_is_told(project: Project, where: str) -> None:
    project.claims(law(1))
    (project.folder / "folder").mkdir()
    assert project.run(f"--report={where}").refused("--report")
