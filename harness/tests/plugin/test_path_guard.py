"""Paths as values of Assay's options: pytest must not take them for test paths."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from assay.harness.cli.check import join_paths
from assay.harness.plugin import options, path_guard
from assay.harness.tests.support.clones import PLUGIN, run
from assay.harness.tests.support.sessions import ROOT

STRAY = "a conftest.py beside the model was run"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder with a conftest."""
    folder = tmp_path / "a model"
    folder.mkdir()
    (folder / "conftest.py").write_text(f"print({STRAY!r})\n")
    return folder


@pytest.mark.parametrize("by", ["arguments", "workers", "environment", "settings named"])
def test_a_folder_after_a_space_is_refused_and_nothing_in_it_is_run(
    clone: Path, model: Path, by: str
) -> None:
    arguments = {"workers": ["-n", "2"], "settings named": ["-c", "pyproject.toml"]}.get(by, [])
    # As the program ``pytest`` does, without the current folder on Python's path.
    program = ("-P", "-m", "pytest")
    if by == "environment":
        done = run(clone, command=program, PYTEST_ADDOPTS=f"--model '{model}'")
    else:
        done = run(clone, *arguments, "--model", model, command=program)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert [line for line in done.stderr.splitlines() if line.strip()] == [
        f"ERROR: --model {model}: after a space pytest takes the path for a test's; write "
        f"--model={model}, or assay check MODEL"
    ]
    assert STRAY not in done.stdout + done.stderr


def test_without_the_plug_in_the_folder_is_taken_for_a_test_path(clone: Path, model: Path) -> None:
    done = run(clone, "--model", model, "-p", f"no:{PLUGIN}")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "unrecognized arguments: --model" in done.stderr
    assert STRAY in done.stdout


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "in workers"])
def test_the_claims_are_run_and_nothing_else(clone: Path, model: Path, workers: list[str]) -> None:
    done = run(clone, *workers, f"--model={model}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert f"claims/test_it.py::test_one[{model}]" in done.stdout
    assert STRAY not in done.stdout + done.stderr


def test_files_that_exist_are_values_as_well_and_claims_can_be_chosen(clone: Path) -> None:
    evidence = clone.parent / "evidence.sqlite"
    evidence.touch()
    named = (f"--evidence={evidence}", "--model", "x", "test_it.py::test_two")
    done = run(clone / "claims", *named)
    assert "1 passed" in done.stdout
    assert "::test_two[x]" in done.stdout


BEGUN = """
from pathlib import Path

def pytest_configure(config):
    worker = hasattr(config, "workerinput")
    with Path("begun").open("a") as file:
        file.write("worker " if worker else "run ")
    if not worker and config.option.evidence:
        Path(config.option.evidence).touch()
"""


@pytest.mark.parametrize("by", ["arguments", "environment"])
def test_a_file_that_the_run_makes_is_no_test_path_to_its_workers(clone: Path, by: str) -> None:
    """They began the whole run again each, and the run did not end."""
    (clone / "conftest.py").open("a").write(BEGUN)
    arguments = ["--model", "x", f"--evidence={clone.parent / 'new.sqlite'}"]
    environment = {"PYTEST_ADDOPTS": " ".join(arguments)} if by == "environment" else {}
    done = run(clone, "-n", "2", *(arguments if by == "arguments" else ()), **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert Counter((clone / "begun").read_text().split()) == {"run": 1, "worker": 2}


@pytest.mark.parametrize("option", sorted(path_guard.WRITTEN))
def test_a_file_to_write_is_refused_after_a_space_though_it_is_not_there(
    clone: Path, option: str
) -> None:
    """In a second run, and in workers, it would be."""
    done = run(clone, "--model=x", option, "new")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"write {option}=new" in done.stderr


def test_a_failure_keeps_its_exit_code(clone: Path) -> None:
    (clone / "broken").mkdir()
    done = run(clone, "--model=broken")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 failed" in done.stdout


def test_options_may_come_by_the_environment(clone: Path, model: Path) -> None:
    done = run(clone, PYTEST_ADDOPTS=f"'--model={model}'")
    assert done.returncode == 0, done.stderr
    assert "2 passed" in done.stdout


def test_a_caller_in_python_gets_the_exit_code_and_keeps_its_plugins(
    clone: Path, model: Path
) -> None:
    script = (
        "import sys, pytest\n"
        "class Mine:\n"
        "    def pytest_collection_finish(self, session):\n"
        "        print('mine saw', len(session.items))\n"
        "        pytest.exit('enough', returncode=77)\n"
        "sys.exit(pytest.main(sys.argv[1:], plugins=[Mine()]))\n"
    )
    done = run(clone, f"--model={model}", command=("-c", script))
    assert done.returncode == 77, done.stderr
    assert "mine saw 2" in done.stdout


def test_outside_of_a_clone_nothing_changes(clone: Path, model: Path) -> None:
    (clone / "claims").rename(clone / "elsewhere")
    done = run(clone, "--model", model)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert STRAY in done.stdout


@pytest.mark.parametrize(
    "arguments", [("--model=x",), ("--model", "x"), ("--evidence", "e.sqlite")]
)
def test_outside_of_a_clone_an_option_is_refused_with_the_place_where_it_is_known(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "harness").symlink_to(ROOT / "harness")
    done = run(tmp_path, *arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"unrecognized arguments: {arguments[0]}" in done.stderr
    assert "are known where its claims are run: assay check MODEL" in done.stderr
    other = run(tmp_path, "--nothing-of-assays=x")
    assert other.returncode == pytest.ExitCode.USAGE_ERROR
    assert "assay check" not in other.stderr


@pytest.mark.parametrize("blow", ["SIGINT", "SIGTERM"])
def test_an_interrupt_while_the_libraries_are_imported_is_one_line(clone: Path, blow: str) -> None:
    heeded = (
        "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell may have it ignored
    )
    (clone / "conftest.py").write_text(
        f"import atexit, os, signal\n{heeded}\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"  # Ctrl-C is pressed again
        f"os.kill(os.getpid(), signal.{blow})\n"
    )
    done = run(clone, "--model=x")
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.strip() == "interrupted before any claim was run"


@pytest.mark.parametrize("then", ["raise ModuleNotFoundError('torch')", "pass"])
@pytest.mark.parametrize("blow", ["SIGINT", "SIGTERM"])
def test_an_interrupt_that_a_library_catches_is_one_line_too(
    clone: Path, blow: str, then: str
) -> None:
    (clone / "conftest.py").write_text(
        "import os, signal\n"
        "try:\n"
        f"    os.kill(os.getpid(), signal.{blow})\n"
        f"except BaseException:\n    {then}\n"
    )
    usual = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    begin = usual + "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    done = run(clone, "--model=x", command=("-P", "-c", begin))
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.strip() == "interrupted before any claim was run"


@pytest.mark.parametrize("value", ["--dash", "--json=x"])
def test_a_value_that_begins_with_a_dash_is_refused_by_its_option(clone: Path, value: str) -> None:
    done = run(clone, "--model", value)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "argument --model: expected one argument" in done.stderr
    assert run(clone, "--model=-dash").returncode == 0
    assert run(clone, "--model", "-1").returncode == 0, "argparse takes numbers for values"


def test_claims_run_with_the_harness_of_their_own_clone(clone: Path, model: Path) -> None:
    own = clone / "harness" / "package" / "assay"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("own = True\n")
    plugins = (ROOT / "conftest.py").read_text().partition("pytest_plugins")[0]
    (clone / "conftest.py").write_text(plugins + (clone / "conftest.py").read_text())
    (clone / "claims" / "test_it.py").write_text(
        "import assay\ndef test_it(subject): assert assay.own\n"
    )
    done = run(clone, f"--model={model}", command=("-P", "-m", "pytest"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_joins_paths_to_their_options() -> None:
    arguments = ["-n", "2", "--model", "a b", "--explain", "--seed=3", "claims", "--json"]
    assert join_paths(arguments) == ["-n", "2", "--model=a b", *arguments[4:]]
    assert join_paths(["--model", "--explain"]) == ["--model", "--explain"]
    assert join_paths(["--", "--model", "x"]) == ["--", "--model", "x"]
    assert join_paths(["--model", "a", "b"]) == ["--model=a", "b"]


def test_a_run_elsewhere_is_about_the_clone_whose_claims_it_names(
    clone: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "own" / "project"
    elsewhere.mkdir(parents=True)
    claims = os.path.relpath(clone / "claims", elsewhere)
    assert path_guard.about_a_clone(clone / "claims", [])
    assert path_guard.about_a_clone(elsewhere, ["--model", "m", f"{claims}/test_it.py::test_one"])
    assert not path_guard.about_a_clone(elsewhere, ["--model", claims])
    assert not path_guard.about_a_clone(elsewhere, ["no/such/claims", str(elsewhere)])


def test_the_options_guarded_are_those_whose_values_are_paths() -> None:
    outputs = {"evidence", "json", "report", "summary"}
    assert {f"--{name}" for name in outputs} == path_guard.WRITTEN
    assert {f"--{n}" for n in options.PATHS} | {"--model", "--device-map"} == path_guard.PATHS


def test_an_install_registers_the_plug_in() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: path_guard.__name__}
