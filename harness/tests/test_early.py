"""Paths as values of Assay's options: pytest must not take them for test paths."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from harness import early

ROOT = Path(__file__).parents[2]
PLUGIN = "harness.early"
INSTALLED = bool(entry_points(group="pytest11", name=PLUGIN))
COLLECTED = "claims/test_causality.py::test_a_prefix_ignores_what_follows_it"
STRAY = "a conftest.py beside the model was run"


def run(
    *args: object, folder: Path = ROOT, command: tuple[str, ...] = ("-m", "pytest"), **env: str
) -> subprocess.CompletedProcess[str]:
    """Collect claims in another process, in ``folder``, with ``args`` on pytest's command line.

    Where Assay is not installed the plug-in comes by the environment, at the same moment.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    if not INSTALLED:
        inherited |= {"PYTEST_PLUGINS": PLUGIN, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, *command, *map(str, args), "--collect-only", "-q"]
    line += ["-p", "no:cacheprovider"]
    return subprocess.run(
        line, cwd=folder, env=inherited | env, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder that would mislead pytest most: with a configuration and a conftest."""
    folder = tmp_path / "a model"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(f"print({STRAY!r})\n")
    return folder


def test_a_folder_after_model_is_a_model(model: Path) -> None:
    done = run("--model", model)
    assert done.returncode == 0, done.stderr
    assert f"{COLLECTED}[{model}]" in done.stdout
    assert STRAY not in done.stdout


def test_without_the_plug_in_the_folder_is_taken_for_a_test_path(model: Path) -> None:
    done = run("--model", model, "-p", f"no:{PLUGIN}")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "unrecognized arguments: --model" in done.stderr
    assert STRAY in done.stdout


def test_worker_processes_take_the_folder_for_a_model_too(model: Path) -> None:
    done = run("--model", model, "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert STRAY not in done.stdout


def test_files_that_exist_are_values_as_well_and_claims_can_be_chosen(tmp_path: Path) -> None:
    evidence, page = tmp_path / "evidence.sqlite", tmp_path / "page.json"
    evidence.touch()
    page.touch()
    chosen = run(COLLECTED, "--evidence", evidence, "--json", page, "--model", "tiny:llama")
    assert chosen.returncode == 0, chosen.stderr
    assert [line for line in chosen.stdout.splitlines() if "::" in line] == [
        f"{COLLECTED}[tiny:llama]"
    ]


def test_options_may_come_by_the_environment(model: Path) -> None:
    done = run(PYTEST_ADDOPTS=f"--model '{model}'")
    assert done.returncode == 0, done.stderr
    assert f"{COLLECTED}[{model}]" in done.stdout


def test_a_caller_in_python_gets_the_exit_code_and_keeps_its_plugins(model: Path) -> None:
    script = (
        "import sys, pytest\n"
        "class Mine:\n"
        "    def pytest_collection_finish(self, session):\n"
        "        print('mine saw', len(session.items) > 5)\n"
        "        raise pytest.UsageError('enough')\n"
        "sys.exit(pytest.main(sys.argv[1:], plugins=[Mine()]))\n"
    )
    done = run("--model", model, command=("-c", script))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stderr
    assert "mine saw True" in done.stdout


def test_outside_of_a_clone_nothing_changes(model: Path, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--model')\n"
    )
    done = run("--model", model, folder=tmp_path)
    assert STRAY in done.stdout


def test_claims_of_another_clone_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "early.py").touch()
    (tmp_path / "claims").mkdir()
    # By pytest's own program the folder is not on Python's path: it is this clone that is met.
    done = run(folder=tmp_path, command=("-c", "import sys, pytest; sys.exit(pytest.main())"))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.strip().splitlines() == [
        f"ERROR: the claims are those of {tmp_path}, but this environment has Assay from {ROOT}: "
        f"run `pip install -e {tmp_path}` first"
    ]


def test_only_values_that_stand_apart_are_joined() -> None:
    given = ["-n", "2", "--model", "a b", "--explain", "--seed=3", "claims", "--json"]
    assert early.joined(given) == ["-n", "2", "--model=a b", *given[4:]]
    assert early.joined(["--model", "--explain"]) == ["--model", "--explain"]
    assert early.joined(["--", "--model", "x"]) == ["--", "--model", "x"]


def test_only_what_exists_misleads(tmp_path: Path) -> None:
    assert early.misleads(["--model", str(tmp_path)])
    assert not early.misleads(["--model", "tiny:llama"])
    assert not early.misleads(["--replay", "A" * 100_000])
    assert not early.misleads([f"--model={tmp_path}", str(tmp_path)])


def test_the_options_joined_are_those_that_take_a_value(pytestconfig: pytest.Config) -> None:
    done = run("--help")
    section = done.stdout.split("Assay: claims about")[1].split("\n\n")[0]
    options = [line.split() for line in section.splitlines() if line.startswith("  --")]
    takes = {first.split("=")[0] for first, *_ in options if "=" in first}
    assert takes == early.TAKE_VALUES
    assert "--explain" in {first for first, *_ in options}


def test_an_install_registers_the_plug_in() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: early.__name__}
