"""What is printed is printed as it is: `tiny:llama:` has an animal's name between two colons."""

from __future__ import annotations

import ast

import pytest

from assay.harness.tests.support.sessions import ROOT

FILES = sorted(
    path
    for path in (ROOT / "harness").rglob("*.py")
    if "tests" not in path.parts and "Console(" in path.read_text()
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_console_turns_names_between_colons_into_pictures(path):
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    consoles = [call for call in calls if getattr(call.func, "id", "") == "Console"]
    assert consoles
    for call in consoles:
        settings = {each.arg: ast.unparse(each.value) for each in call.keywords}
        assert settings.get("emoji") == "False", ast.unparse(call)
