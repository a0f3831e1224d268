"""Errors in one line, whatever they quote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.harness.cli.main import main
from assay.harness.results.errors import BadInput, Missing, brief, refusals
from assay.harness.runners.environments import CannotInstall, prepare


def test_a_terminal_obeys_nothing_that_an_error_quotes() -> None:
    said = "\x1b[2Jno\r\nsuch\tmodel\x07\u202e"
    assert str(BadInput(said)) == "?[2Jno such model??"
    assert brief(ValueError(said)) == "ValueError: ?[2Jno such model??"


@pytest.mark.parametrize("command", ["runs", "merge out.sqlite", "sweep"])
def test_an_empty_path_is_refused(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*command.split(), ""]) == 4
    assert "'' is empty; say which" in capsys.readouterr().err


def test_a_message_of_any_length_is_shortened() -> None:
    said = str(BadInput(f"--claim {'x' * 20_000}: is no fault"))
    assert len(said) < 2100
    assert said.startswith("--claim xxx")
    assert said.endswith("xxx: is no fault")


def test_a_few_bytes_are_no_evidence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """SQLite takes a file of one byte for an empty one, and writes to it."""
    path = tmp_path / "evidence.sqlite"
    path.write_text("{")
    assert main(["versions", "4.48", "--model=tiny:gpt2", f"--evidence={path}"]) == 4
    assert "not an SQLite file" in capsys.readouterr().err
    assert path.read_text() == "{"


def test_a_folder_that_no_environment_can_be_made_in_is_refused(tmp_path: Path) -> None:
    """Venv refuses a path that has the separator of PATH in it."""
    with pytest.raises(CannotInstall, match="PATH separator"):
        prepare(tmp_path / f"a{os.pathsep}b", ["transformers==4.57.6"])


@pytest.mark.parametrize("command", ["report pipe --out=page", "report /dev/zero --out=page"])
def test_what_is_no_file_is_not_read(
    command: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    assert main(command.split()) == 4
    assert ": not a file" in capsys.readouterr().err


def test_a_refusal_is_a_lack_that_quotes_it_and_another_error_is_none():
    with pytest.raises(Missing, match=r"^beams: these are not supported$"), refusals("beams"):
        raise ValueError("these are not supported\nat all")
    for error in (ValueError("another"), RuntimeError("not supported")):
        with pytest.raises(type(error), match=str(error)), refusals("beams"):
            raise error
