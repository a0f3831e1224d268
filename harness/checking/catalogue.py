"""The claims as their files declare them, read from the syntax alone: no file is run.

So a list of the claims, or a misspelt one, takes no import of torch.  Literals and constants of
Assay's files are evaluated, and pytest's marks; all else, such as functions, is `OPAQUE`.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from assay.harness.checking.bounds import Bound, NoDifference
from assay.harness.results.errors import BadInput, printable, shortened
from assay.harness.results.verdicts import Kind, is_about_engines

ROOT = Path(__file__).parents[2]
"""The folder of `claims`, `fixtures` and `harness`."""

FOLDER = ROOT / "claims"
"""The folder of Assay's claims."""

FIELDS = ("id", "says", "needs", "source", "control", "bound", "enough", "toy", "slow")
"""The arguments of `law` and `finding` that describe a claim."""

PARAMETERS = type(pytest.param())


@dataclass(frozen=True)
class Declared:
    """A claim's declaration; ``variants`` are the ids of pytest's parameters, if it has any."""

    id: str
    says: str
    kind: Kind
    source: str
    file: str
    needs: tuple[str, ...] = ()
    control: str = ""
    bound: str = ""
    enough: int | None = None
    toy: bool = False
    slow: bool | tuple[str, ...] = False
    variants: tuple[str, ...] = ()

    @property
    def about_engines(self) -> bool:
        """Whether it is about what serves a model."""
        return is_about_engines(self.needs)

    @property
    def names(self) -> list[str]:
        """The names of its tests."""
        return [f"{self.says} [{variant}]" for variant in self.variants] or [self.says]


@cache
def claims() -> tuple[Declared, ...]:
    """Assay's claims, in the order of their files; raises `BadInput` where they cannot be read."""
    return tuple(claim for file in _files() for claim in _of_file(file))


def files(selectors: Sequence[str]) -> set[Path]:
    """The files of Assay's claims that ``selectors`` (``ID[:TEXT]``) name."""
    return {
        ROOT / claim.file
        for claim in _with_numbers(selectors)
        for name in claim.names
        if any(is_asked(each, claim.id, name) for each in selectors)
    }


def misspelt(selectors: Sequence[str]) -> str:
    """The message for the first selector that names none of Assay's claims, or empty."""
    if not unknown(selectors, _named(_with_numbers(selectors))):
        return ""
    return unknown(selectors, _named(claims()))


def _named(claims: Iterable[Declared]) -> list[tuple[str, str]]:
    return [(claim.id, name) for claim in claims for name in claim.names]


def _files() -> list[Path]:
    return sorted(FOLDER.rglob("test_*.py"))


def _with_numbers(selectors: Sequence[str]) -> Iterator[Declared]:
    """The claims of the files in which a selector's number occurs: few have to be read."""
    numbers = {f'"{each.partition(":")[0]}"' for each in selectors}
    for file in _files():
        text = file.read_text(encoding="utf-8")
        if any(number in text for number in numbers):
            yield from _of_file(file)


def is_asked(selector: str, id: str, name: str) -> bool:
    """Whether ``selector``, ``ID`` or ``ID:TEXT``, selects the claim ``id``'s test ``name``."""
    number, _, text = selector.partition(":")
    return id == number and text in name


def order(id: str) -> tuple[str, int]:
    """The order of claims' numbers: A2 before A10, A before B."""
    letters = id.rstrip("0123456789")
    return letters, int(id[len(letters) :] or 0)


def unknown(selectors: Sequence[str], named: Collection[tuple[str, str]]) -> str:
    """The message for the first selector without a test in ``named`` (id, name), or empty."""
    for each in selectors:
        if not any(is_asked(each, id, name) for id, name in named):
            numbers = sorted({id for id, _ in named}, key=order)
            selector = shortened(printable(each), 100)
            number = each.partition(":")[0]
            near = number.strip().upper()
            if near in numbers and near != number:
                return f"{selector}: there is no such claim here; did you mean {near}?"
            return f"{selector}: there is no such claim here; there are {', '.join(numbers)}"
    return ""


def parameters(marks: Iterable[pytest.Mark]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every combination of ``parametrize`` marks: its id, as pytest joins them, and arguments."""
    ways = [_way(mark) for mark in marks if mark.name == "parametrize"]
    for chosen in itertools.product(*ways):
        arguments = {name: value for _, each in chosen for name, value in each.items()}
        yield "-".join(id for id, _ in chosen), arguments


def _way(mark: pytest.Mark) -> list[tuple[str, dict[str, Any]]]:
    names, values = mark.args[0], mark.args[1]
    names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    ids = mark.kwargs.get("ids")
    arguments = []
    for index, value in enumerate(values):
        id = ids[index] if isinstance(ids, list | tuple) else None
        many = (value,) if len(names) == 1 else tuple(value)
        if isinstance(value, PARAMETERS):
            id, many = value.id or id, tuple(value.values)
        arguments.append((id or "-".join(map(str, many)), dict(zip(names, many, strict=True))))
    return arguments


@cache
def _of_file(file: Path) -> tuple[Declared, ...]:
    try:
        scope = _scope(file)
        declared = [_declared(test, scope) for test in scope.functions]
        return tuple(claim for claim in declared if claim is not None)
    except Exception as error:  # whatever an expression of the file may raise
        why = f"its claims cannot be read ({type(error).__name__}: {error})"
        raise BadInput(f"{file}: {why}; declare them by literals and constants") from error


def _declared(test: ast.FunctionDef, scope: _Scope) -> Declared | None:
    marks = []
    fields: dict[str, Any] | None = None
    for each in reversed(test.decorator_list):  # the order in which they are applied
        name = ast.unparse(each.func) if isinstance(each, ast.Call) else ""
        if name in (Kind.LAW, Kind.FINDING):
            fields = {"kind": Kind(name), **scope.arguments(each)}
        elif isinstance(mark := scope.value(each), pytest.MarkDecorator):
            marks.append(mark.mark)
    if fields is None:
        return None
    fields["needs"] = tuple(fields.get("needs", ()))
    fields["control"] = _sentences(fields["control"])
    fields["bound"] = str(fields.get("bound", ""))
    variants = tuple(id for id, _ in parameters(marks) if id)
    return Declared(file=scope.path, variants=variants, **fields)


def _sentences(control: Any) -> str:
    """What a claim's controls do, as `harness.checking.controls` says it."""
    named = control if isinstance(control, Mapping) else {"": control}
    says = {name: getattr(each, "says", each) for name, each in named.items()}
    return "; ".join(f"{name}: {each}" if name else each for name, each in says.items())


class _Opaque:
    """A value that is not evaluated; so are its attributes, and what it returns."""

    def __call__(self, *_: Any, **__: Any) -> _Opaque:
        return self

    def __getattr__(self, name: str) -> _Opaque:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


OPAQUE = _Opaque()


class _Damage(NamedTuple):
    says: str
    needs: str = ""
    unless: str = ""


class _Statistic:
    """A statistic's name; nothing is computed here."""

    def __init__(self, name: str, *_: Any, **__: Any) -> None:
        self.name, self.compute = name, OPAQUE


CHECKING = "assay.harness.checking"
CLASSES: dict[tuple[str, str], Any] = {
    (f"{CHECKING}.bounds", "Bound"): Bound,
    (f"{CHECKING}.bounds", "NoDifference"): NoDifference,
    (f"{CHECKING}.controls", "Damage"): _Damage,
    (f"{CHECKING}.statistics", "Statistic"): _Statistic,
}
"""Classes by (module, name) whose instances describe a claim."""


class _Scope:
    """The names of a file, evaluated when they are first needed; the locals of an expression."""

    def __init__(self, file: Path) -> None:
        self.path = file.relative_to(ROOT).as_posix()
        parts = self.path.removesuffix(".py").split("/")
        self.module = ".".join(("assay", *parts)).removesuffix(".__init__")
        self.functions: list[ast.FunctionDef] = []
        self._imports: dict[str, tuple[str, str]] = {}
        self._assignments: dict[str, ast.stmt] = {}
        self._others: set[str] = set()
        self._values: dict[str, Any] = {}
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            self._read(node)

    def _read(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef(name=name) if name.startswith("test_"):
                self.functions.append(node)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                self._others.add(name)
            case ast.Import(names=names):
                self._imports |= {each.asname or each.name: (each.name, "") for each in names}
            case ast.ImportFrom(module=module, names=names):
                own = {each.asname or each.name: (module or "", each.name) for each in names}
                self._imports |= own
            case ast.Assign() | ast.AnnAssign():
                stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
                targets = [each.id for each in stored if isinstance(each.ctx, ast.Store)]
                self._assignments |= dict.fromkeys(targets, node)

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self._find(name)
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def _assign(self, statement: ast.stmt) -> None:
        code = compile(ast.Module([statement], []), self.module, "exec")
        with suppress(NameError):  # in a generator, where names are looked up elsewhere
            exec(code, {"pytest": pytest}, self)  # type: ignore[arg-type]

    def _find(self, name: str) -> Any:
        if (self.module, name) in CLASSES:
            return CLASSES[self.module, name]
        if name in self._assignments:
            self._assign(self._assignments[name])
            return self._values.get(name, OPAQUE)
        if name in self._imports:
            return _imported(*self._imports[name])
        if name in self._others:
            return OPAQUE
        raise KeyError(name)  # one of Python's own

    def value(self, node: ast.expr) -> Any:
        """The value of an expression of this file."""
        code = compile(ast.Expression(node), self.module, "eval")
        return eval(code, {"pytest": pytest}, self)  # type: ignore[arg-type]

    def arguments(self, call: ast.expr) -> dict[str, Any]:
        """The arguments of a call of `law` or `finding` that describe the claim."""
        assert isinstance(call, ast.Call)
        values = dict(zip(FIELDS, map(self.value, call.args), strict=False))
        for each in call.keywords:
            if each.arg is None:
                values |= self.value(each.value)
            elif each.arg in FIELDS:
                values[each.arg] = self.value(each.value)
        return values


class _Module:
    """A module of Assay: its attributes are the names of its file."""

    def __init__(self, scope: _Scope) -> None:
        self._scope = scope

    def __getattr__(self, name: str) -> Any:
        return self._scope[name]


def _imported(module: str, name: str) -> Any:
    if module == "pytest":
        return getattr(pytest, name) if name else pytest
    if name and (file := _file(f"{module}.{name}")) is not None:
        return _Module(_scope(file))
    if (file := _file(module)) is None:
        return OPAQUE
    return _scope(file)[name] if name else OPAQUE


def _file(module: str) -> Path | None:
    """The file of a module of Assay; None for another library's."""
    first, *rest = module.split(".")
    path = ROOT.joinpath(*rest)
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((each for each in files if each.is_file()), None) if first == "assay" else None


@cache
def _scope(file: Path) -> _Scope:
    return _Scope(file)
