"""Mutations that mutmut leaves out: of constants, and of functions that have a decorator.

``python harness/tests/support/mutate_the_rest.py [part of a path …]`` prints, from the project's
root, every one that the module's tests do not notice, and a score.  Each is tried on a copy of the
project, in a process forked from one that has imported torch and nothing of ours.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.pop(0)  # this file's folder: its neighbours are no top-level modules
sys.dont_write_bytecode = True  # two mutants in one second would share what is cached
os.environ["CI"] = "1"  # hypothesis then draws the same examples every time, without a deadline

import libcst as cst
import pytest
import torch
import transformers  # noqa: F401
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

SECONDS = 60
"""A mutant that takes longer hangs: it is noticed."""

TESTS = {
    "harness/models/reference/tolerances.py": ("check", "tolerances"),
    "harness/results/verdicts.py": ("verdicts",),
    "harness/checking/statistics.py": ("statistics",),
    "harness/checking/check.py": ("check", "laws"),
    "harness/models/subject/rows.py": ("rows",),
    "harness/checking/measures.py": ("measures",),
    "harness/inversion/decoding.py": ("factors", "decoding"),
    "harness/operations/factors.py": ("factors", "decoding"),
    "harness/operations/likeliest.py": ("likeliest", "likeliest_ties"),
    "harness/models/capabilities/caches.py": ("caches",),
    "harness/models/subject/positions.py": ("positions", "padding"),
    "fixtures/permutations.py": ("permutations",),
}
"""Modules, and which ``test_*.py`` are about them."""


class Left(cst.CSTVisitor):
    """Collects what mutmut would make of the nodes that it leaves out."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.mutations: list[tuple[int, cst.CSTNode, cst.CSTNode]] = []
        self.depth = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom):
            return False
        if isinstance(node, cst.FunctionDef):
            if not self.depth and not left_out(node):
                return False
            self.depth += 1
        line = self.get_metadata(PositionProvider, node).start.line
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                self.mutations += [(line, node, changed) for changed in operator(node)]
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.FunctionDef) and (self.depth or left_out(original_node)):
            self.depth -= 1


def left_out(function: cst.FunctionDef) -> bool:
    """Whether mutmut passes ``function`` by: it has a decorator that is none of two."""
    names = [getattr(each.decorator, "value", None) for each in function.decorators]
    return bool(names) and names not in (["staticmethod"], ["classmethod"])


def mutants(source: str) -> Iterator[tuple[int, str]]:
    """The line of every mutation that mutmut leaves out, and the module with it."""
    wrapper, visitor = MetadataWrapper(cst.parse_module(source)), Left()
    wrapper.visit(visitor)
    for line, node, changed in visitor.mutations:
        code = wrapper.module.deep_replace(node, changed).code  # type: ignore[attr-defined]
        yield line, code


def passes(folder: Path, names: tuple[str, ...]) -> bool:
    """Whether the tests of the copy in ``folder`` pass, in a process of their own."""
    child = os.fork()
    if not child:
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        signal.alarm(SECONDS)
        tests = [f"harness/tests/test_{name}.py" for name in names]
        os._exit(pytest.main(["-xq", "-p", "no:cacheprovider", *tests]))
    return os.waitpid(child, 0)[1] == 0


def changed_lines(before: str, after: str) -> str:
    """What a mutation made of its lines."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    one, other = next((pair for pair in pairs if pair[0] != pair[1]), ("", "a line more or less"))
    return f"{one.strip()}\n        → {other.strip()}"


def main(wanted: list[str]) -> None:
    """Try every mutation of the modules whose path holds one of ``wanted``."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name in ("harness", "fixtures", "claims"):
            shutil.copytree(name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(name, folder)
        for path, tests in TESTS.items():
            if wanted and not any(part in path for part in wanted):
                continue
            source, tried, killed = Path(path).read_text(), 0, 0
            if not passes(folder, tests):
                raise SystemExit(f"the tests of {path} fail as it is")
            for line, code in mutants(source):
                (folder / path).write_text(code)
                tried += 1
                if passes(folder, tests):
                    print(f"  {path}:{line}: {changed_lines(source, code)}", flush=True)
                else:
                    killed += 1
            (folder / path).write_text(source)
            print(f"{path}: {killed} of {tried} killed", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
