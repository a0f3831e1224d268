"""`assay check`: what becomes of its arguments before pytest has them."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from assay.harness.cli.check import PATHS, claims, join_paths, main
from assay.harness.plugin import options
from assay.harness.results.errors import BadInput


def test_the_command_joins_paths_to_their_options() -> None:
    arguments = ["-n", "2", "--model", "a b", "--explain", "--seed=3", "claims", "--json"]
    assert join_paths(arguments) == ["-n", "2", "--model=a b", *arguments[4:]]
    assert join_paths(["--model", "--explain"]) == ["--model", "--explain"]
    assert join_paths(["--", "--model", "x"]) == ["--", "--model", "x"]
    assert join_paths(["--model", "a", "b"]) == ["--model=a", "b"]
    assert {f"--{n}" for n in options.PATHS} | {"--model", "--device-map"} == PATHS


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
    assert started == [[str(claims()), "--model=model"]]


@pytest.mark.parametrize(
    ("word", "near"),
    [("--profil=glance", "--profile"), ("--evidense", "--evidence"), ("--claims=C2", "--claim")],
)
def test_a_misspelt_option_gets_its_near_match(word: str, near: str) -> None:
    with pytest.raises(BadInput, match=f"did you mean {near}"):
        main(["tiny:llama", word], pytest.fail)


def test_help_lists_every_option_of_assay_on_one_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = Mock()
    options.add(parser)
    names = {call.args[0] for call in parser.getgroup.return_value.addoption.call_args_list}
    assert len(names) > 20
    assert main(["--help"], pytest.fail) == 0
    usage = capsys.readouterr().out
    assert {name for name in names if name not in usage} == set()
    assert len(usage.splitlines()) <= 48
    assert all(len(line) <= 100 for line in usage.splitlines())


def test_options_of_pytest_are_not_taken_for_misspelt_ones() -> None:
    words = ["-q", "--maxfail=1", "--collect-only", "--durations=3", "--junitxml=x", "--tb=short"]
    words += ["--basetemp=x", "--deselect=x", "--reruns=2", "--no-header", "--pdb", "--lf", "--sw"]
    assert main(["tiny:llama", *words], lambda words: 0) == 0
