"""Copies a model with what was patched into it: functions that its modules or hooks hold, and
converts copies to another dtype.

`copy.deepcopy` shares functions.  One that wraps ``model.forward``, as loggers and profilers
install, would make the copy run the original's weights.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial, update_wrapper
from types import CellType, FunctionType, MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)

HOOKS = ("_forward_hooks", "_forward_pre_hooks")
"""Attributes of a module that hold functions by number."""


def copy_model(model: Model, replaced: Mapping[int, Any] | None = None) -> Model:
    """A deep copy in which patched functions call the copy.

    ``replaced`` are objects to put in the place of others', by the `id` of those.  Raises what
    deepcopy raises.
    """
    copies: dict[int, Any] = dict(replaced or {})
    duplicate = copy.deepcopy(model, copies)
    for module in duplicate.modules():
        for name, value in list(vars(module).items()):
            if name in HOOKS:
                for number, hook in value.items():
                    value[number] = _in_copy(hook, copies)
            elif isinstance(value, FunctionType | MethodType):
                vars(module)[name] = _in_copy(value, copies)
    return duplicate


def cast(model: nn.Module, dtype: torch.dtype, buffers: bool = True) -> None:
    """Convert the floating-point parameters of ``model``, and its ``buffers``, to ``dtype``, in
    place.

    Complex ones stay complex, of that precision or the least that there is: `nn.Module.to` takes
    their real part alone, which is the cosine of a rotation without its sine.
    """
    wide = torch.complex128 if dtype == torch.float64 else torch.complex64

    def converted(tensor: Tensor) -> Tensor:
        if tensor.is_complex():
            return tensor.to(wide)
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    originals = {} if buffers else dict(model.named_buffers())
    model._apply(converted)
    for name, buffer in originals.items():
        owner, _, own = name.rpartition(".")
        model.get_submodule(owner)._buffers[own] = buffer


def _in_copy(value: Any, copies: dict[int, Any]) -> Any:
    """``value`` as the copy needs it: parts of the model in it are replaced by the copy's.

    ``copies`` are the copied objects by the `id` of the originals.
    """
    if id(value) in copies:
        return copies[id(value)]
    if isinstance(value, MethodType):
        owner = _in_copy(value.__self__, copies)
        if owner is value.__self__:
            return value
        return MethodType(_in_copy(value.__func__, copies), owner)
    if isinstance(value, partial):
        parts = [value.func, *value.args, *value.keywords.values()]
        within = [_in_copy(each, copies) for each in parts]
        if all(one is other for one, other in zip(parts, within, strict=True)):
            return value
        function, *arguments = within
        places = len(value.args)
        named = dict(zip(value.keywords, arguments[places:], strict=True))
        return partial(function, *arguments[:places], **named)
    if isinstance(value, tuple):
        return tuple(_in_copy(each, copies) for each in value)
    if isinstance(value, dict):
        return {name: _in_copy(each, copies) for name, each in value.items()}
    if isinstance(value, FunctionType):
        replaced = _globals(value, copies)
        holds = value.__closure__ or value.__defaults__ or value.__kwdefaults__
        return _function(value, replaced, copies) if replaced or holds else value
    return value


def _globals(function: FunctionType, copies: dict[int, Any]) -> dict[str, Any]:
    """Global names by which ``function`` uses a part of the model, with the copy's parts.

    Other functions that it calls are not followed: they lead through whole libraries.
    """
    named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    parts = {n: v for n, v in named.items() if isinstance(v, nn.Module | MethodType | partial)}
    replaced = {name: _in_copy(value, copies) for name, value in parts.items()}
    return {name: value for name, value in replaced.items() if value is not parts[name]}


def _function(
    function: FunctionType, replaced: dict[str, Any], copies: dict[int, Any]
) -> FunctionType:
    cells = [CellType() for _ in function.__closure__ or ()]
    duplicate = FunctionType(
        function.__code__,
        function.__globals__ | replaced if replaced else function.__globals__,
        function.__name__,
        _in_copy(function.__defaults__, copies),
        tuple(cells),
    )
    copies[id(function)] = duplicate  # a function may hold itself
    duplicate.__kwdefaults__ = _in_copy(function.__kwdefaults__, copies)
    update_wrapper(duplicate, function)
    vars(duplicate).update({n: _in_copy(v, copies) for n, v in vars(function).items()})
    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        try:
            cell.cell_contents = _in_copy(original.cell_contents, copies)
        except ValueError:  # the cell is empty
            continue
    return duplicate
