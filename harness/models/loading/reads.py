"""Which fields of its configuration a model reads, and which its code could read."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig

from assay.harness.models.machine.shortage import ENDS
from assay.harness.models.subject import Subject
from assay.harness.models.subject.lengths import SHORT
from assay.harness.results.quiet import quiet

Read = tuple[type[Any], str]
"""A configuration's class, and a field that was read of it."""

NOT_OF_A_MODULE = ("assay.", "transformers.generation", "transformers.cache_utils", "copy")
"""Beginnings of names of modules whose reads do not count: they would read any model's fields."""


OF_ALL_TYPES = ("torch", "transformers.")
"""Beginnings of names of modules that all types share, but for `transformers.models`."""


def fields_read(subject: Subject) -> set[Read] | None:
    """The fields that are read while the model is built, without memory, and in a short pass.

    None where it cannot be built so: what its modules read is not known.
    """
    model_class: Any = type(subject.model)
    ids = subject.content(torch.arange(SHORT, device=subject.device)[None])
    try:
        with quiet(), torch.random.fork_rng(devices=[]), _recording() as read:
            with torch.device("meta"):
                model_class(copy.deepcopy(subject.model.config))
            subject(ids, states=False)
    except ENDS:  # whatever a model's own code raises
        return None
    return read


@contextmanager
def _recording() -> Iterator[set[Read]]:
    """Collect the fields that code of modules reads of any configuration, within a block."""
    read: set[Read] = set()
    usual: Any = PretrainedConfig.__getattribute__

    def recorded(config: Any, key: str) -> Any:
        if not key.startswith("_") and _is_of_a_module(sys._getframe(1).f_globals["__name__"]):
            read.add((type(config), renamed(type(config), key)))
        return usual(config, key)

    PretrainedConfig.__getattribute__ = recorded  # type: ignore[method-assign]
    try:
        yield read
    finally:
        PretrainedConfig.__getattribute__ = usual  # type: ignore[method-assign]


@functools.cache
def _is_of_a_module(name: str) -> bool:
    last = name.rpartition(".")[2]
    return not (last.startswith("configuration_") or name.startswith(NOT_OF_A_MODULE))


def renamed(config_class: type[Any], name: str) -> str:
    """The name by which the class has the field (`attribute_map`)."""
    return dict(getattr(config_class, "attribute_map", {})).get(name, name)


def declared(config_class: type[Any]) -> dict[str, Any]:
    """The fields that a type of configuration declares, with their defaults."""
    if is_dataclass(config_class):
        return {each.name: each.default for each in fields(config_class)}
    chain = (vars(each).get("__init__") for each in config_class.__mro__)
    signatures = [inspect.signature(each).parameters for each in chain if inspect.isfunction(each)]
    return {
        name: each.default
        for parameters in reversed(signatures)
        for name, each in parameters.items()
        if each.default is not inspect.Parameter.empty
    }


def converts(config_class: type[Any], name: str) -> bool:
    """Whether code of the configuration's class uses the field, other than to keep it."""
    return any(name in _used_by(each) for each in config_class.__mro__ if each is not object)


def adjusts(config_class: type[Any], name: str) -> bool:
    """Whether code of the type's configuration sets the field to what was not given."""
    chain = config_class.__mro__
    return any(name in _set_by(each) for each in chain[: chain.index(PretrainedConfig)])


@functools.cache
def _set_by(config_class: type[Any]) -> frozenset[str]:
    return frozenset(
        each.attr
        for statement in ast.walk(_tree(config_class))
        if isinstance(statement, ast.stmt) and not _only_keeps(statement)
        for each in ast.walk(statement)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
    )


@functools.cache
def _used_by(config_class: type[Any]) -> frozenset[str]:
    return frozenset(
        name
        for function in ast.walk(_tree(config_class))
        if isinstance(function, ast.FunctionDef)
        for statement in ast.walk(function)
        if not _only_keeps(statement)
        for name in _names(statement)
    )


def _only_keeps(statement: ast.AST) -> bool:
    """Whether it is a part of a larger statement, or ``self.x = x``."""
    if not isinstance(statement, ast.stmt) or isinstance(
        statement, ast.FunctionDef | ast.ClassDef
    ):
        return True
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name):
        target = statement.targets[0]
        return isinstance(target, ast.Attribute) and target.attr == statement.value.id
    return False


def _names(tree: ast.AST) -> Iterator[str]:
    """The variables that are read, the attributes and the strings."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def mentions(model: nn.Module, name: str) -> bool:
    """Whether the code of the model's type has the field's name anywhere, or its beginning
    (``t2u_``): some make a part's configuration of the fields that begin so.
    """
    modules = {each.__module__ for each in _classes(model)}
    own = [each for each in modules if not each.startswith(OF_ALL_TYPES) or ".models." in each]
    first, _, rest = name.partition("_")
    called = {name, f"{first}_"} if rest else {name}
    return any(called & _mentioned(each) for each in own)


@functools.cache
def _mentioned(module: str) -> frozenset[str]:
    return frozenset(_names(_tree(sys.modules.get(module))))


def could_build_with(model: nn.Module, name: str) -> bool:
    """Whether the constructor of one of the model's modules has code that reads the field."""
    return any(name in _read_by_constructor(each) for each in _classes(model))


def _classes(model: nn.Module) -> set[Any]:
    return {base for each in model.modules() for base in type(each).__mro__[:-1]}


@functools.cache
def _read_by_constructor(module_class: type[Any]) -> frozenset[str]:
    if module_class.__module__.startswith("torch") or "__init__" not in vars(module_class):
        return frozenset()
    return frozenset(
        each.attr
        for each in ast.walk(_tree(vars(module_class)["__init__"]))
        if isinstance(each, ast.Attribute) and ast.unparse(each.value).endswith("config")
    )


def _tree(code: Any) -> ast.AST:
    """The syntax tree of a class, a function or a module; empty where its source is not there."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])
