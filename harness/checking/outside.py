"""Claims from outside: of a file, a folder or a package that ``--claims`` or an entry point names.

Their modules are imported, and so run with all rights of whoever starts Assay: those that are
named, and no file beside them.  The claims are declared, checked and shown as Assay's own are.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from assay.harness.checking import catalogue
from assay.harness.checking.catalogue import Declared
from assay.harness.results.errors import BadInput, brief

if TYPE_CHECKING:  # which imports torch
    from assay.harness.checking.claim import Claim

GROUP = "assay.claims"
"""The group of entry points: each is a module, or a package, of claims."""

FILES = "test_*.py"
"""The files of a folder or package that hold claims, as in Assay's own."""

NUMBER = re.compile(r"[A-Za-z][A-Za-z_-]*[0-9]+")
"""A claim's permanent number: letters, then digits."""


@dataclass(frozen=True)
class Outside:
    """A module with claims, and the ``name`` by which it was asked for."""

    name: str
    file: Path
    module: ModuleType

    @property
    def shown(self) -> str:
        """Its path: from the current folder on, where it lies in that."""
        path, here = self.file, Path.cwd()
        return str(path.relative_to(here) if path.is_relative_to(here) else path)

    @property
    def claims(self) -> Iterator[tuple[str, Claim]]:
        """Its claims, each with the name of its function; not those that it imports."""
        for name, each in vars(self.module).items():
            own = inspect.isfunction(each) and each.__module__ == self.module.__name__
            if own and (claim := getattr(each, "claim", None)) is not None:
                yield name, claim


def installed() -> list[str]:
    """The modules of claims that installed packages declare."""
    return sorted({each.value.partition(":")[0] for each in entry_points(group=GROUP)})


@cache
def load(names: tuple[str, ...]) -> tuple[Outside, ...]:
    """Import the claims that ``names`` stand for, each file once; raises `BadInput`."""
    modules: dict[Path, Outside] = {}
    for name in names:
        found = [Outside(name, file, imported(file)) for file in _files(name)]
        if not any([*each.claims] for each in found):
            raise BadInput(f"--claims {name}: has no claims (@assay.law, @assay.finding)")
        for each in found:
            modules.setdefault(each.file, each)
    if modules:
        _check(modules.values())
    return tuple(modules.values())


def declared(names: Sequence[str]) -> list[Declared]:
    """The declarations of the claims that ``names`` stand for; raises `BadInput`."""
    return [each for source in load(tuple(names)) for each in _declared(source)]


def _declared(source: Outside) -> Iterator[Declared]:
    for name, claim in source.claims:
        marks = vars(source.module)[name].pytestmark
        variants = tuple(id for id, _ in catalogue.parameters(marks) if id)
        fields = {field: getattr(claim, field) for field in (*catalogue.FIELDS, "kind")}
        yield Declared(**fields, file=source.shown, variants=variants)


def _check(sources: Iterable[Outside]) -> None:
    """Raise `BadInput` for a claim that would be lost, or mistaken for another one."""
    from assay.harness.models import capabilities  # a module of claims has imported torch

    places = {each.id: each.file for each in catalogue.claims()}
    for source in sources:
        for name, claim in source.claims:
            here = f"{source.shown}::{name}"
            if not name.startswith("test_"):
                raise BadInput(f"{here}: the name of {claim.id}'s function must begin with test_")
            if not NUMBER.fullmatch(claim.id):
                raise BadInput(f"{here}: {claim.id!r} is not letters and digits, such as ACME1")
            for need in claim.needs:
                if need not in capabilities.names() and not need.startswith("engine-"):
                    raise BadInput(f"{here}: {claim.id} needs {need!r}, which is no capability")
            if claim.id in places:
                both = f"{places[claim.id]} and {here}"
                raise BadInput(f"{claim.id} is declared twice: {both}; choose another number")
            places[claim.id] = here


def _files(name: str) -> list[Path]:
    """The files that ``name`` stands for."""
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        files = _tests(path)
    elif path.exists() or name.endswith(".py") or os.sep in name:
        if not path.is_file() or path.suffix != ".py":
            raise BadInput(f"--claims {name}: no such file, folder or package")
        files = [path.resolve()]
    else:
        files = _of_package(name)
    if not files:
        raise BadInput(f"--claims {name}: has no file {FILES}")
    return files


def _of_package(name: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(name)
    except Exception as error:  # from a package around it, or for a name that is none
        raise BadInput(f"--claims {name}: cannot be imported ({brief(error)})") from error
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        raise BadInput(f"--claims {name}: no such file, folder or package")
    if spec.submodule_search_locations is None:
        return [Path(str(spec.origin)).resolve()]
    return [file for folder in spec.submodule_search_locations for file in _tests(Path(folder))]


def _tests(folder: Path) -> list[Path]:
    """The files of claims in a folder; not those of hidden ones, nor of an environment."""
    files = [file for file in folder.rglob(FILES) if file.is_file()]
    parts = {file: file.relative_to(folder).parts for file in files}
    own = [f for f in files if not any(p[0] == "." or p == "site-packages" for p in parts[f])]
    return sorted(file.resolve() for file in own)


def _module_of(file: Path) -> str:
    """The name of a file's module: within its package, else one that no other module has."""
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts, folder = [folder.name, *parts], folder.parent
    if len(parts) > 1:
        return ".".join(parts)
    return f"assay_outside_{hashlib.sha256(os.fsencode(file)).hexdigest()[:8]}_{file.stem}"


def imported(path: str | Path) -> ModuleType:
    """The module of a file, which may import what lies next to it, or next to its package.

    Raises `BadInput` with the line on which the import ended.
    """
    file = Path(path).resolve()
    name = _module_of(file)
    root = str(file.parents[name.count(".")])
    sys.path.insert(0, root)
    try:
        if (module := sys.modules.get(name)) is None:
            module = importlib.import_module(name) if "." in name else _of_file(name, file)
    except (Exception, SystemExit) as error:  # whatever someone else's code raises
        ours = isinstance(error, BadInput)
        why = str(error) if ours else f"cannot be imported ({brief(error)})"
        raise BadInput(f"{_line(file, error)}: {why}") from error
    finally:
        sys.path.remove(root)
    if (other := getattr(module, "__file__", None)) is None or Path(other).resolve() != file:
        raise BadInput(f"{file}: {other} is imported by its name, {name}; rename one")
    return module


def _of_file(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _line(file: Path, error: BaseException) -> str:
    """Where in ``file`` an import ended: ``FILE:LINE``."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [each.lineno for each in frames if Path(each.filename) == file]
    return f"{file}:{lines[-1]}" if lines else str(file)
