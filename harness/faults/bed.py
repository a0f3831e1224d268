"""Injects a fault into a model: changes that its copies have too and that can be undone.

A fault is a bug in a model's code, so it has to be where the code is: in the float64 twin, which
is a deep copy, and in a copy that was saved and loaded.  Changes are therefore hooks that hold
nothing of the model they were made for; what they know of the pass they are in they read off a
`Pass`, which a deep copy of the model has its own of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.faults.calls import AttentionCall, CacheRead, ExpertsCall, Pass, own_cache
from assay.harness.models import compat
from assay.harness.models.subject import Subject

GONE = object()
"""Stands for an attribute that was not there."""

FLAG = "_planted_functions"
"""Under this name a module holds what is to become of functions that it looks up by name."""

PASS = "_planted_pass"
"""Under this name a model holds its `Pass`; plain state of faults lies on that."""

UPDATE = "update of the cache"
"""Under this name a pass keeps what stood in its cache where a change of what is read stands."""


class Hook:
    """A hook that calls ``change(pass, …)``; a deep copy has the copied model's pass."""

    def __init__(self, change: Callable[..., Any], seen: Pass, **held: Any) -> None:
        self.change, self.seen, self.held = change, seen, held

    def __call__(self, module: nn.Module, *given: Any) -> Any:
        """Whatever the change makes of what torch gives a hook of its kind."""
        return self.change(self.seen, *given, **self.held)


class Bed:
    """One model, taken as ``subject``, in which a fault is planted.

    ``loaded``: it was saved and loaded from the model that has the fault.
    """

    def __init__(self, subject: Subject, loaded: bool = False) -> None:
        self.subject, self.model, self.loaded = subject, subject.model, loaded
        self._undo: list[Callable[[], Any]] = []
        seen = getattr(self.model, PASS, None)
        self.seen: Pass = Pass() if seen is None else seen
        if seen is None:
            self.set(self.model, PASS, self.seen)
            begin = Hook(
                _begin,
                self.seen,
                is_encoder_decoder=subject.is_encoder_decoder,
                cache_name=subject.cache_argument,
            )
            handle = self.model.register_forward_pre_hook(begin, with_kwargs=True, prepend=True)
            self._undo.append(handle.remove)

    # -- what can be changed --------------------------------------------------------------------

    def before(self, module: nn.Module, change: Callable[..., Any], **held: Any) -> None:
        """``change(pass, given, named)`` gives a module other arguments, or None to keep them."""
        hook = Hook(change, self.seen, **held)
        self._undo.append(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

    def after(self, module: nn.Module, change: Callable[..., Any], **held: Any) -> None:
        """``change(pass, state)`` gives another output; of several, the first of them."""
        hook = Hook(_first_changed, self.seen, inner=change, **held)
        # Before the library's own hooks, which note the states.
        self._undo.append(module.register_forward_hook(hook, prepend=True).remove)

    def after_any(self, module: nn.Module, change: Callable[..., Any], **held: Any) -> None:
        """``change(pass, output)`` gives another output, whatever it is, or None."""
        hook = Hook(_changed, self.seen, inner=change, **held)
        self._undo.append(module.register_forward_hook(hook, prepend=True).remove)

    def arguments(self, change: Callable[..., Any], **held: Any) -> None:
        """``change(pass, arguments)`` alters the whole model's arguments in place."""
        self.before(self.model, _arguments_changed, inner=change, **held)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Give ``owner`` an attribute of its own until this is undone."""
        kept = vars(owner).get(name, GONE)

        def back() -> None:
            if kept is GONE:
                delattr(owner, name)
            else:
                setattr(owner, name, kept)

        setattr(owner, name, value)
        self._undo.append(back)

    def parameter(self, module: nn.Module, name: str, other: nn.Parameter) -> None:
        """Put another parameter in the place of a module's own."""
        kept = getattr(module, name)
        setattr(module, name, other)
        self._undo.append(lambda: setattr(module, name, kept))

    @torch.no_grad()
    def weights(self, weights: Tensor, change: Callable[[Tensor], Any]) -> None:
        """``change`` alters ``weights`` in place; they are put back bit for bit."""
        kept = weights.detach().clone()

        def back() -> None:
            with torch.no_grad():
                weights.copy_(kept)

        change(weights.data)
        self._undo.append(back)

    def attention(
        self, modules: list[nn.Module], name: str, change: Callable[..., Any], **held: Any
    ) -> None:
        """Let ``change(call)`` attend by ``name`` (`AttentionCall`) for these modules.

        Wherever transformers looks the function up in its AttentionInterface.
        """
        self._divert(compat.attention_functions(), AttentionCall, modules, name, change, held)

    def experts(
        self, modules: Sequence[nn.Module], name: str, change: Callable[..., Any], **held: Any
    ) -> None:
        """Let ``change(call)`` compute experts by ``name`` (`ExpertsCall`) for these modules."""
        self._divert(compat.experts_functions(), ExpertsCall, modules, name, change, held)

    def _divert(
        self,
        table: Any,
        kind: Callable[..., Any],
        modules: Sequence[nn.Module],
        name: str,
        change: Callable[..., Any],
        held: dict[str, Any],
    ) -> None:
        self._undo.append(_interface(table, name, kind))
        for module in modules:
            self.set(module, FLAG, {name: Hook(change, self.seen, **held)})

    def reading(self, change: Callable[..., CacheRead], **held: Any) -> None:
        """What attention reads of its cache: ``change(read)`` gives another (`CacheRead`).

        What is stored stays as it is.
        """
        enter = Hook(_wrap_cache, self.seen, inner=change, **held)
        self._undo.append(self.model.register_forward_pre_hook(enter).remove)
        leave = Hook(_unwrap_cache, self.seen)
        self._undo.append(self.model.register_forward_hook(leave, always_call=True).remove)

    def undo(self) -> None:
        """Put everything back, the last change first."""
        while self._undo:
            self._undo.pop()()


def _begin(
    seen: Pass,
    given: tuple[Any, ...],
    named: dict[str, Any],
    is_encoder_decoder: bool,
    cache_name: str | None,
) -> None:
    seen.begin(is_encoder_decoder, cache_name, named)


def _first_changed(
    seen: Pass, given: tuple[Any, ...], output: Any, inner: Callable[..., Any], **held: Any
) -> Any:
    state = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(state, Tensor) or state.ndim != 3 or state.shape[1] != seen.new:
        return None
    other = inner(seen, state, **held)
    if other is None:
        return None
    return (other, *output[1:]) if isinstance(output, tuple | list) else other


def _changed(
    seen: Pass, given: tuple[Any, ...], output: Any, inner: Callable[..., Any], **held: Any
) -> Any:
    return inner(seen, output, **held)


def _arguments_changed(
    seen: Pass,
    given: tuple[Any, ...],
    named: dict[str, Any],
    inner: Callable[..., Any],
    **held: Any,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    named = dict(named)
    inner(seen, named, **held)
    return given, named


# -- functions that a module looks up by name ----------------------------------------------------

_WRAPPED: dict[str, tuple[Callable[..., Any], int]] = {}
"""Functions of the library's tables that are wrapped now, and by how many faults."""


def _interface(table: Any, name: str, kind: Callable[..., Any]) -> Callable[[], None]:
    """Wrap the function ``name`` of a ``table``; gives what takes the wrapper off again.

    What is changed is told a ``kind`` of call.
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
    def function(module: nn.Module, *given: Any, **named: Any) -> Any:
        hook = getattr(module, FLAG, {}).get(name)
        if hook is None:
            return usual(module, *given, **named)
        return hook.change(kind(hook.seen, usual, module, *given, more=named), **hook.held)

    return function


# -- caches ---------------------------------------------------------------------------------------


class _Update:
    """In the place of a cache's ``update``: the same, and then what is read is changed."""

    def __init__(self, cache: Any, seen: Pass, change: Callable[[CacheRead], CacheRead]) -> None:
        self.usual, self.seen, self.change = cache.update, seen, change

    def __call__(self, keys: Tensor, values: Tensor, layer: int, *more: Any, **named: Any) -> Any:
        new = keys.shape[-2]
        all_keys, all_values = self.usual(keys, values, layer, *more, **named)
        # A buffer of fixed length is not full, and one that slides has dropped the oldest.
        past = min(all_keys.shape[-2], self.seen.past + new) - new
        if past <= 0:
            return all_keys, all_values
        read = self.change(CacheRead(self.seen, all_keys, all_values, past, layer))
        return read.keys, read.values


def _wrap_cache(
    seen: Pass, given: tuple[Any, ...], inner: Callable[..., Any], **held: Any
) -> None:
    cache = own_cache(seen.cache)
    if cache is not None and seen.cached and hasattr(cache, "update"):
        seen.kept[UPDATE] = vars(cache).get("update", GONE)
        cache.update = _Update(cache, seen, partial(inner, **held))


def _unwrap_cache(seen: Pass, given: tuple[Any, ...], output: Any) -> None:
    cache, usual = own_cache(seen.cache), seen.kept.pop(UPDATE, None)
    if usual is GONE:
        vars(cache).pop("update", None)
    elif usual is not None:  # a caller's, which watches what comes
        cache.update = usual
    seen.cache = None  # nothing of a caller's is kept
