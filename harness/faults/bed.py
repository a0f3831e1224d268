"""Injects a fault into a model: changes that apply to its copies too and can be undone.

A fault is a bug in a model's code, so it has to be wherever the code runs: in the float64
reference copy, which is a deep copy, and in a copy that was saved and loaded.  Changes are
therefore hooks without references to the model; they read the state of the current forward pass
from a `Pass`, of which a deep copy of the model has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.faults.calls import AttentionCall, CacheRead, ExpertsCall, Pass, own_cache
from assay.harness.models.capabilities import releases
from assay.harness.models.subject import Subject
from assay.harness.models.subject.experts import functions_by_name
from assay.harness.models.subject.roles import Bound

GONE = object()
"""Stands for an attribute that did not exist."""

FLAG = "_planted_functions"
"""The attribute of a module that holds its changes of functions looked up by name."""

PASS = "_planted_pass"
"""The attribute of a model that holds its `Pass`, on which faults keep plain state."""

UPDATE = "update of the cache"
"""The note of a pass that keeps the cache's own ``update`` while a change replaces it."""


class Hook:
    """A hook that calls ``change(pass, …)``; a deep copy has the copied model's pass."""

    def __init__(self, change: Callable[..., Any], forward: Pass) -> None:
        self.change, self.forward = change, forward

    def __call__(self, module: nn.Module, *args: Any) -> Any:
        """Call the change with the arguments of torch's hook."""
        self.forward.training = module.training
        return self.change(self.forward, *args)


class Bed:
    """One model, taken as ``subject``, into which a fault is injected.

    ``loaded``: it was saved and loaded from the model that has the fault.
    """

    def __init__(self, subject: Subject, loaded: bool = False) -> None:
        self.subject, self.model, self.loaded = subject, subject.model, loaded
        self._undo: list[Callable[[], Any]] = []
        forward = getattr(self.model, PASS, None)
        self.forward: Pass = forward or Pass(subject.window, subject.layers)
        if forward is None:
            self.set(self.model, PASS, self.forward)
            begin = partial(_begin, bound=subject.bound, cache_name=subject.cache_argument)
            handle = self.model.register_forward_pre_hook(
                Hook(begin, self.forward), with_kwargs=True, prepend=True
            )
            self._undo.append(handle.remove)

    # -- what can be changed --------------------------------------------------------------------

    def before(self, module: nn.Module, change: Callable[..., Any]) -> None:
        """``change(pass, args, kwargs)`` returns other arguments of a module, or None."""
        hook = Hook(change, self.forward)
        self._undo.append(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

    def after(self, module: nn.Module, change: Callable[..., Any]) -> None:
        """``change(pass, state)`` returns another output; of several, the first one."""
        hook = Hook(partial(_first_changed, inner=change), self.forward)
        # Before the library's own hooks, which record the states.
        self._undo.append(module.register_forward_hook(hook, prepend=True).remove)

    def after_any(self, module: nn.Module, change: Callable[..., Any]) -> None:
        """``change(pass, output)`` returns another output of any type, or None to keep it."""
        hook = Hook(partial(_changed, inner=change), self.forward)
        self._undo.append(module.register_forward_hook(hook, prepend=True).remove)

    def arguments(self, change: Callable[..., Any]) -> None:
        """``change(pass, arguments)`` alters the whole model's arguments in place."""
        self.before(self.model, partial(_arguments_changed, inner=change))

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of ``owner`` until this is undone."""
        original = vars(owner).get(name, GONE)

        def restore() -> None:
            if original is GONE:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

        setattr(owner, name, value)
        self._undo.append(restore)

    def parameter(self, module: nn.Module, name: str, other: nn.Parameter) -> None:
        """Replace a parameter of a module."""
        original = getattr(module, name)
        setattr(module, name, other)
        self._undo.append(lambda: setattr(module, name, original))

    @torch.no_grad()
    def weights(self, weights: Tensor, change: Callable[[Tensor], Any]) -> None:
        """``change`` alters ``weights`` in place; `undo` restores them bit for bit."""
        original = weights.detach().clone()

        def restore() -> None:
            with torch.no_grad():
                weights.copy_(original)

        change(weights.data)
        self._undo.append(restore)

    def attention(self, modules: list[nn.Module], name: str, change: Callable[..., Any]) -> None:
        """Let ``change(call)`` attend by ``name`` (`AttentionCall`) for these modules.

        It applies wherever transformers looks the function up in its AttentionInterface.
        """
        self._divert(releases.attention_functions(), AttentionCall, modules, name, change)

    def experts(self, modules: Sequence[nn.Module], name: str, change: Callable[..., Any]) -> None:
        """Let ``change(call)`` compute experts by ``name`` (`ExpertsCall`) for these modules."""
        self._divert(functions_by_name(), ExpertsCall, modules, name, change)

    def _divert(
        self,
        table: Any,
        kind: Callable[..., Any],
        modules: Sequence[nn.Module],
        name: str,
        change: Callable[..., Any],
    ) -> None:
        self._undo.append(_interface(table, name, kind))
        for module in modules:
            others = getattr(module, FLAG, {})
            self.set(module, FLAG, {**others, name: Hook(change, self.forward)})

    def reading(self, change: Callable[[CacheRead], CacheRead]) -> None:
        """``change(read)`` alters what attention reads from its cache (`CacheRead`).

        The stored entries stay as they are.
        """
        enter = Hook(partial(_wrap_cache, inner=change), self.forward)
        self._undo.append(self.model.register_forward_pre_hook(enter).remove)
        leave = Hook(_unwrap_cache, self.forward)
        self._undo.append(self.model.register_forward_hook(leave, always_call=True).remove)

    def undo(self) -> None:
        """Put everything back, the last change first."""
        while self._undo:
            self._undo.pop()()


def _begin(
    forward: Pass,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    bound: Bound,
    cache_name: str | None,
) -> None:
    forward.begin(bound, cache_name, kwargs)


def _first_changed(
    forward: Pass, args: tuple[Any, ...], output: Any, inner: Callable[..., Any]
) -> Any:
    state = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(state, Tensor) or state.ndim != 3 or state.shape[1] != forward.new:
        return None
    other = inner(forward, state)
    if other is None:
        return None
    return (other, *output[1:]) if isinstance(output, tuple | list) else other


def _changed(forward: Pass, args: tuple[Any, ...], output: Any, inner: Callable[..., Any]) -> Any:
    return inner(forward, output)


def _arguments_changed(
    forward: Pass,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inner: Callable[..., Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    kwargs = dict(kwargs)
    inner(forward, kwargs)
    return args, kwargs


# -- functions that a module looks up by name ----------------------------------------------------

_WRAPPED: dict[str, tuple[Callable[..., Any], int]] = {}
"""Functions of the library's tables that are currently wrapped, and by how many faults."""


def _interface(table: Any, name: str, kind: Callable[..., Any]) -> Callable[[], None]:
    """Wrap the function ``name`` of a ``table``; returns a function that removes the wrapper.

    Changes get a call of class ``kind``.
    """
    usual, users = _WRAPPED.get(name, (None, 0))
    if usual is None:
        usual = table[name]
        table.register(name, _diverting(name, usual, kind))
    _WRAPPED[name] = usual, users + 1

    def off() -> None:
        own, left = _WRAPPED.pop(name)
        if left > 1:
            _WRAPPED[name] = own, left - 1
        else:
            table.register(name, own)

    return off


def _diverting(
    name: str, usual: Callable[..., Any], kind: Callable[..., Any]
) -> Callable[..., Any]:
    def function(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        hook = getattr(module, FLAG, {}).get(name)
        if hook is None:
            return usual(module, *args, **kwargs)
        return hook.change(kind(hook.forward, usual, module, *args, kwargs=kwargs))

    return function


# -- caches ---------------------------------------------------------------------------------------


class _Update:
    """Replaces a cache's ``update``: the same, and then changes the entries that are read."""

    def __init__(
        self, cache: Any, forward: Pass, change: Callable[[CacheRead], CacheRead]
    ) -> None:
        self.usual, self.forward, self.change = cache.update, forward, change

    def __call__(self, keys: Tensor, values: Tensor, layer: int, *args: Any, **kwargs: Any) -> Any:
        new = keys.shape[-2]
        all_keys, all_values = self.usual(keys, values, layer, *args, **kwargs)
        # A buffer of fixed length may not be full, and one that slides has dropped the oldest.
        past = min(all_keys.shape[-2], self.forward.past + new) - new
        if past <= 0:
            return all_keys, all_values
        read = self.change(CacheRead(self.forward, all_keys, all_values, past, layer))
        return read.keys, read.values


def _wrap_cache(forward: Pass, args: tuple[Any, ...], inner: Callable[..., Any]) -> None:
    cache = own_cache(forward.cache)
    if cache is not None and forward.cached and hasattr(cache, "update"):
        forward.notes[UPDATE] = vars(cache).get("update", GONE)
        cache.update = _Update(cache, forward, inner)


def _unwrap_cache(forward: Pass, args: tuple[Any, ...], output: Any) -> None:
    cache, usual = own_cache(forward.cache), forward.notes.pop(UPDATE, None)
    if usual is GONE:
        vars(cache).pop("update", None)
    elif usual is not None:  # a caller's own, which watches updates
        cache.update = usual
    forward.cache = None  # drop the caller's cache
