"""`assay check`: what becomes of its arguments before pytest has them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from assay.fixtures import families
from assay.harness.cli.check import PATHS, join_paths, main, separate
from assay.harness.cli.early import FOLDER, model_types
from assay.harness.plugin import options
from assay.harness.results.errors import BadInput


def test_the_command_joins_paths_to_their_options() -> None:
    arguments = ["-n", "2", "--model", "a b", "--explain", "--seed=3", "claims", "--json"]
    assert join_paths(arguments) == ["-n", "2", "--model=a b", *arguments[4:]]
    assert join_paths(["--model", "--explain"]) == ["--model", "--explain"]
    assert join_paths(["--", "--model", "x"]) == ["--", "--model", "x"]
    assert join_paths(["--model", "a", "b"]) == ["--model=a", "b"]
    others = {"--model", "--against", "--claims", "--device-map"}
    assert {f"--{n}" for n in options.PATHS} | others == PATHS


def test_the_command_hands_models_and_options_to_pytest() -> None:
    calls: list[list[str]] = []
    words = ["tiny:llama", "a folder", "-m", "law", "-n", "2"]
    assert main(words, lambda arguments: calls.append(arguments) or 3) == 3
    models = ["--model=tiny:llama", "--model=a folder"]
    added = ["--dist=loadfile", "--profile=glance"]
    assert calls == [[str(FOLDER), *models, *added, "-m", "law", "-n", "2"]]


@pytest.mark.parametrize(
    ("options", "grouped"),
    [("-n2", True), ("--numprocesses=auto", True), ("-n 1", False), ("-n 2 --dist=load", False)],
)
def test_several_processes_run_groups_unless_the_user_says_otherwise(
    options: str, grouped: bool
) -> None:
    assert main(options.split(), lambda words: "--dist=loadfile" in words) == grouped


@pytest.mark.parametrize(
    ("arguments", "models"),
    [
        (["tiny:gpt2", "b", "-n", "2"], ["tiny:gpt2", "b"]),
        (["--seed=3", "tiny:gpt2", "-m", "law"], ["tiny:gpt2"]),
        (["-n2", "a", "--explain", "b", "-x", "c"], ["a", "b", "c"]),
        (["-k", "a", "--junitxml", "b"], []),
    ],
)
def test_models_stand_before_options_or_between_them(
    arguments: list[str], models: list[str]
) -> None:
    specs, others = separate(arguments)
    assert specs == models
    assert [each for each in arguments if each not in models] == others


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tiny:gpt2", ""], "a MODEL is empty"),
        (["no/such/path"], "'no/such/path': no such folder"),
        (["tiny:lama"], "knows no model type 'lama'; near: llama"),
        (["tiny:gpt2", "--claim=c2"], "c2: there is no such claim here; did you mean C2"),
        (["tiny:gpt2", "--claim=C2:nothing"], "C2:nothing: there is no such claim here"),
        (["tiny:gpt2", "--profile=slow"], "--profile 'slow': is unknown"),
        (["tiny:gpt2", "--profil=glance"], "did you mean --profile"),
        (["tiny:gpt2", "--evidense"], "did you mean --evidence"),
    ],
)
def test_what_is_misspelt_is_rejected_before_pytest_starts(
    arguments: list[str], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        main(arguments, pytest.fail)


def test_files_that_are_missing_are_named_before_torch_is_imported(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    script = """
import sys
from assay.harness.cli import check
try:
    check.main(sys.argv[1:], print)
except Exception as error:
    print(error, "torch" in sys.modules)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.endswith("names 'model-00001-of-00002.safetensors', which is not there False\n")


def test_types_are_those_of_the_library() -> None:
    assert model_types() == set(families.model_types())


@pytest.mark.parametrize("arguments", [["."], [".."], ["--model", "../../model"]])
def test_a_run_begun_in_a_model_s_folder_is_rejected(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers would import modules from there."""
    (tmp_path / "model" / "inside").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "model" / "inside")
    with pytest.raises(BadInput, match="start Assay outside of the model's folder"):
        main(arguments, pytest.fail)
    started = []
    monkeypatch.chdir(tmp_path)
    assert main(["model"], lambda words: started.append(words) or 0) == 0
    assert started == [[str(FOLDER), "--model=model", "--profile=glance"]]


@pytest.mark.parametrize(
    ("words", "added", "profiles"),
    [
        ("owner/name", "", ["--profile=glance"]),
        ("models.py:make", "", ["--profile=glance"]),
        ("tiny:llama reference untrained:small chat", "", []),
        ("owner/name --profile=quick", "", ["--profile=quick"]),
        ("owner/name", "-x --profile=quick", []),
    ],
)
def test_a_model_from_elsewhere_gets_a_glance_unless_a_profile_is_named(
    words: str, added: str, profiles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", added)
    passed: list[str] = []
    main(words.split(), lambda arguments: passed.extend(arguments) or 0)
    assert [word for word in passed if word.startswith("--profile")] == profiles


def test_rollout_is_the_finding_about_rollouts_with_its_figures() -> None:
    passed: list[str] = []
    words = ["--rollout", "engine:own:chat", "--against", "chat"]
    assert main(words, lambda arguments: passed.extend(arguments) or 0) == 0
    assert passed[1:] == [
        *("--model=engine:own:chat", "--profile=glance"),
        *("--claim=I9:rollout", "--explain", "--against=chat"),
    ]


def test_help_lists_every_option_of_assay_on_one_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = Mock()
    options.add(parser)
    names = {call.args[0] for call in parser.getgroup.return_value.addoption.call_args_list}
    assert len(names) <= 25
    assert main(["--help"], pytest.fail) == 0
    usage = capsys.readouterr().out
    assert {name for name in names if name not in usage} == set()
    assert len(usage.splitlines()) <= 48
    assert all(len(line) <= 100 for line in usage.splitlines())


def test_options_of_pytest_are_not_taken_for_misspelt_ones() -> None:
    words = ["-q", "--maxfail=1", "--collect-only", "--durations=3", "--junitxml=x", "--tb=short"]
    words += ["--basetemp=x", "--deselect=x", "--reruns=2", "--no-header", "--pdb", "--lf", "--sw"]
    assert main(["tiny:llama", *words], lambda words: 0) == 0
