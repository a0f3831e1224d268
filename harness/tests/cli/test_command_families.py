"""`assay families`: the table, its JSON, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from assay.fixtures.families.survey import Row
from assay.harness.cli import families
from assay.harness.cli.families_schema import SCHEMA
from assay.harness.cli.main import main

ROWS = [
    Row("llama", "causal", "Llama", 25056, ["full", "full", "linear"], 0.1, 0.2, {"ids": None}),
    Row("bert", "masked", "Bert", 9, [], 0.1, 0.2, {"ids": None, "batch": "no"}, rule="a | b"),
    Row("gone", "causal", why="the process died"),
]


def survey(types, kind, limit, record):
    """A survey that costs nothing."""
    rows = [row for row in ROWS if kind in (None, row.kind)]
    return len(rows), iter(rows)


def test_types_are_built_and_run_and_told(capsys, tmp_path: Path):
    path = tmp_path / "families.json"
    assert main(["families", "gpt2", "gemma4_assistant", "--json", str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == "causal: 1 of 2 run"
    assert "reads that one's keys" in " ".join(shown.split())
    written = json.loads(path.read_text())
    Draft202012Validator(SCHEMA).validate(written)
    assert [model["runs"] for model in written["models"]] == [True, False]
    assert written["models"][0]["class"] == "GPT2LMHeadModel"


def test_the_table_has_a_line_for_each_and_counts_by_kind(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert families.main([], survey) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("✓" in line and "25 056" in line and "2 full, linear" in line for line in lines)
    assert "✓ bert (masked): takes no batch; a | b" in lines
    assert "✗ gone (causal): the process died" in lines
    assert lines[-1] == "causal: 1 of 2 run; masked: 1 of 1 run"


def test_markdown_has_no_seconds_and_escapes_bars(capsys):
    assert families.main(["--markdown"], survey) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| bert | masked | Bert | 9 |  | yes | takes no batch; a \\| b |" in lines
    assert "| gone | causal |  |  |  | no | the process died |" in lines
    assert len({line.count("|") - line.count("\\|") for line in lines[:5]}) == 1


def test_every_row_fits_the_schema_and_a_wrong_one_does_not():
    document = families.document([row.as_json() for row in ROWS])
    validator = Draft202012Validator(SCHEMA)
    validator.validate(document)
    document["models"][0]["kind"] = "sideways"
    assert not validator.is_valid(document)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lama"], "knows no model type 'lama'; near: llama"),
        (["llama", "--kind", "masked"], "has no masked model"),
        (["--kind", "sideways"], "no kind 'sideways'"),
        (["--limit", "0"], "not a number above 0"),
        (["--limit", "1e300"], "1e300 seconds are too many"),
        (["--jso", "x"], "unrecognized"),
    ],
)
def test_bad_input_is_one_line(arguments, words, capsys):
    assert main(["families", *arguments]) == 4
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1


def test_a_folder_in_place_of_a_file_is_refused_before_anything_runs(capsys, tmp_path):
    assert main(["families", "llama", "--json", str(tmp_path)]) == 4
    assert "is a folder" in capsys.readouterr().err
