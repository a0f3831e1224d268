"""The script that records capabilities runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.harness.tests.support import record_capabilities


def test_capabilities_are_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_capabilities.main(["gpt2", "--record", str(tmp_path / "new.json")])
    printed = capsys.readouterr().out
    assert "| gpt2 | causal | GPT2LMHeadModel |" in printed
    assert "causal: 1 of 1 run" in printed
    types = json.loads((tmp_path / "new.json").read_text())["types"]
    assert "cache" in types["causal:gpt2"]
