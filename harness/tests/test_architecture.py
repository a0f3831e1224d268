"""What files of each room may name, and what every claim must say of itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.harness.checking.check import Check
from assay.harness.results.verdicts import Kind
from assay.harness.tests.support.catalogue import claims
from assay.harness.tests.support.sessions import ROOT
from assay.harness.tests.support.toys import toy

MODEL_CLASS = re.compile(r"(?!Auto|Peft|PreTrained)[A-Z]\w*(For[A-Z]\w*|Model)")


def modules(room: str) -> list[Path]:
    """The source files of a room, tests of the harness left out."""
    tests = ROOT / "harness" / "tests"
    files = sorted((ROOT / room).rglob("*.py"))
    return [path for path in files if not path.is_relative_to(tests)]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(source: ast.Module) -> Iterator[str]:
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("assay.") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name.removeprefix("assay.") for name in whole)


def named(source: ast.Module) -> Iterator[str]:
    """Every name, attribute and imported name of a module."""
    for node in ast.walk(source):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


@pytest.mark.parametrize("room", ["harness", "claims"])
def test_no_class_of_models_is_named(room):
    for path in modules(room):
        classes = {name for name in named(tree(path)) if MODEL_CLASS.fullmatch(name)}
        assert not classes, path


@pytest.mark.parametrize("room", ["harness", "fixtures", "claims", "harness/tests"])
def test_every_module_says_what_it_is_for(room):
    for path in sorted((ROOT / room).rglob("*.py")):
        assert ast.get_docstring(tree(path)), path


@pytest.mark.parametrize("room", ["benchmarks", "claims", "fixtures", "harness/tests"])
def test_no_file_is_longer_than_400_lines(room):
    """A longer one is about several subjects, and is split by them."""
    files = sorted((ROOT / room).rglob("*.py"))
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {name: lines for name, lines in lengths.items() if lines > 400} == {}


def test_no_file_of_tests_imports_another():
    """What tests share is in ``harness/tests/support``."""
    files = sorted((ROOT / "harness" / "tests").rglob("*.py"))
    for path in files:
        names = [name for name in imported(tree(path)) if name.startswith("harness.tests.")]
        assert not [name for name in names if ".test_" in name], path


def test_every_claim_has_a_sentence_a_source_and_a_control():
    for claim in claims():
        for said in (claim.says, claim.source, claim.control):
            assert len(said) >= 5, claim.id


def test_no_two_claims_say_the_same():
    # F1 and F2 are about a model's parts, and about a network of Assay's own by another name.
    said = [(claim.says, claim.toy) for claim in claims()]
    assert len(said) == len(set(said))


def test_no_code_but_a_law_and_its_faults_names_the_law():
    """So a new law is two files; `assay list` writes its line in docs/claims.md."""
    numbers = {claim.id for claim in claims() if claim.kind is Kind.LAW}
    numbers -= {"I8"}  # a type of safetensors, too
    for path in [*modules("harness"), *modules("fixtures")]:
        if not path.is_relative_to(ROOT / "harness" / "faults"):
            strings = {n.value for n in ast.walk(tree(path)) if isinstance(n, ast.Constant)}
            assert not numbers & strings, path


def test_what_the_body_of_a_law_can_call_is_little():
    public = [name for name in dir(Check(toy("gpt2"))) if not name.startswith("_")]
    assert len(public) <= 18, public


def loaded_by(path: Path, loaded: set[Path]) -> set[Path]:
    """The source files that importing a file loads, added to ``loaded``; not those of tests."""
    if path not in loaded:
        loaded.add(path)
        body = [each for each in tree(path).body if isinstance(each, ast.Import | ast.ImportFrom)]
        for name in imported(ast.Module(body, [])):
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                whole = ROOT.joinpath(*parts[:end])
                for file in (whole / "__init__.py", whole.with_suffix(".py")):
                    if file.is_file():
                        loaded_by(file, loaded)
    return loaded


def test_a_claim_pulls_in_little():
    files = loaded_by(ROOT / "claims" / "cache" / "test_cache.py", set())
    assert len(files) > 50
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= 7000
