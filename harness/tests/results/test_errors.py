"""Errors in one line, whatever they quote."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.harness.cli.main import main
from assay.harness.results.errors import BadInput, brief


def test_a_terminal_obeys_nothing_that_an_error_quotes() -> None:
    said = "\x1b[2Jno\r\nsuch\tmodel\x07\u202e"
    assert str(BadInput(said)) == "?[2Jno such model??"
    assert brief(ValueError(said)) == "ValueError: ?[2Jno such model??"


@pytest.mark.parametrize("command", ["card", "runs", "merge out.sqlite", "sweep"])
def test_an_empty_path_is_refused(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*command.split(), ""]) == 4
    assert "'' is empty; say which" in capsys.readouterr().err


def test_options_about_no_model_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults", "--dtype=bfloat16"]) == 4
    assert "options about a model are given, and no --model" in capsys.readouterr().err
