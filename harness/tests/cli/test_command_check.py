"""`assay check`: what becomes of its arguments before pytest has them."""

from __future__ import annotations

from pathlib import Path

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
