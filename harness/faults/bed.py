"""Where a fault is planted: changes to one model that are in its copies too and can be undone.

A fault is a bug in a model's code, so it has to be where the code is: in the float64 twin, which
is a deep copy, and in a copy that was saved and loaded.  Changes are therefore hooks that hold
nothing of the model they were made for; what they know of the pass they are in they read off a
`Pass`, which a deep copy of the model has its own of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from harness import compat
from harness.subject import Subject

GONE = object()
"""Stands for an attribute that was not there."""

FLAG = "_planted_attention"
"""Under this name a module holds what is to become of its attention functions."""

PASS = "_planted_pass"
"""Under this name a model holds its `Pass`; plain state of faults lies on that."""


class Pass:
    """What the pass that is under way is: ``past`` tokens in the cache, ``new`` ones, ``rows``.

    ``padded`` tells the new tokens that are padding (bool [rows, new]) or is None; ``embedded``
    whether embeddings were given, ``positions`` those given or None (under ``positions_name``),
    ``ids`` those given or None.
    """

    def __init__(self) -> None:
        self.past, self.new, self.rows = 0, 0, 0
        self.padded: Tensor | None = None
        self.embedded = False
        self.positions: Tensor | None = None
        self.positions_name = "position_ids"
        self.ids: Tensor | None = None
        self.cache: Any = None
        self.kept: dict[Any, Any] = {}

    @property
    def cached(self) -> bool:
        """Whether there is a past."""
        return self.past > 0

    def begin(self, subject_is_decoder: bool, cache_name: str | None, named: dict) -> None:
        """Read the arguments of the whole model."""
        first = "decoder_" if subject_is_decoder else ""
        self.ids = named.get(f"{first}input_ids")
        embeddings = named.get(f"{first}inputs_embeds")
        self.embedded = self.ids is None and embeddings is not None
        given = embeddings if self.ids is None else self.ids
        self.rows, self.new = (0, 0) if given is None else (given.shape[0], given.shape[1])
        self.cache = named.get(cache_name) if cache_name else None
        self.past = past_length(self.cache)
        self.positions_name = f"{first}position_ids"
        self.positions = named.get(self.positions_name)
        mask = named.get(f"{first}attention_mask")
        self.padded = None
        if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] >= self.new > 0:
            padded = mask[:, -self.new :] == 0
            self.padded = padded if bool((mask == 0).any()) else None

    def places(self, like: Tensor) -> Tensor:
        """The place of every new token, counted from the first of all: [new]."""
        return torch.arange(self.past, self.past + self.new, device=like.device)


def past_length(cache: Any) -> int:
    """Tokens in a cache; 1 for a recurrence that has begun, which does not count them."""
    if cache is None:
        return 0
    try:
        return int(cache.get_seq_length())
    except (ValueError, StopIteration):
        return int(cache.has_previous_state())


class Hook:
    """A hook that calls ``change(pass, module, …)``; a deep copy has the copied model's pass."""

    def __init__(self, change: Callable[..., Any], seen: Pass, **held: Any) -> None:
        self.change, self.seen, self.held = change, seen, held

    def __call__(self, module: nn.Module, *given: Any) -> Any:  # noqa: D102
        return self.change(self.seen, module, *given, **self.held)


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
            reading = Hook(_begin, self.seen, cache_name=subject.cache_argument)
            handle = self.model.register_forward_pre_hook(reading, with_kwargs=True, prepend=True)
            self._undo.append(handle.remove)

    # -- what can be changed --------------------------------------------------------------------

    def before(self, module: nn.Module, change: Callable[..., Any], **held: Any) -> None:
        """``change(pass, module, given, named)`` gives other arguments, or None to keep them."""
        hook = Hook(change, self.seen, **held)
        self._undo.append(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

    def after(self, module: nn.Module, change: Callable[..., Any], **held: Any) -> None:
        """``change(pass, module, state)`` gives another output; of several, the first of them."""
        hook = Hook(_first_changed, self.seen, inner=change, held=held)
        # Before the library's own hooks, which note the states.
        self._undo.append(module.register_forward_hook(hook, prepend=True).remove)

    def after_any(self, module: nn.Module, change: Callable[..., Any], **held: Any) -> None:
        """``change(pass, module, output)`` gives another output, whatever it is, or None."""
        hook = Hook(_changed, self.seen, inner=change, held=held)
        self._undo.append(module.register_forward_hook(hook, prepend=True).remove)

    def named(self, change: Callable[..., Any], **held: Any) -> None:
        """``change(pass, model, arguments)`` alters the whole model's arguments in place."""
        self.before(self.model, _named_changed, inner=change, held=held)

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

    def attention(self, modules: list[nn.Module], name: str, change: Callable[..., Any]) -> None:
        """Let ``change(pass, usual, module, query, key, value, mask, named)`` attend by ``name``.

        For these modules, wherever transformers looks the function up in its AttentionInterface.
        """
        self._undo.append(_interface(name))
        for module in modules:
            self.set(module, FLAG, {name: Hook(change, self.seen)})

    def reading(self, change: Callable[..., Any]) -> None:
        """What attention reads of its cache: ``change(pass, keys, values, past, layer)``.

        Keys and values are [rows, heads, all, width], ``past`` of them from earlier calls; the
        change gives others.  What is stored stays as it is.
        """
        enter = Hook(_wrap_cache, self.seen, inner=change)
        self._undo.append(self.model.register_forward_pre_hook(enter).remove)
        leave = Hook(_unwrap_cache, self.seen)
        self._undo.append(self.model.register_forward_hook(leave, always_call=True).remove)

    def undoing(self, undo: Callable[[], Any]) -> None:
        """Remember something else that has to be undone."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Put everything back, the last change first."""
        while self._undo:
            self._undo.pop()()


def _begin(seen: Pass, model: Any, given: tuple, named: dict, cache_name: str | None) -> None:
    seen.begin(bool(model.config.is_encoder_decoder), cache_name, named)


def _first_changed(
    seen: Pass, module: nn.Module, given: tuple, output: Any, inner: Callable, held: dict
) -> Any:
    state = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(state, Tensor) or state.ndim != 3 or state.shape[1] != seen.new:
        return None
    other = inner(seen, module, state, **held)
    if other is None:
        return None
    return (other, *output[1:]) if isinstance(output, tuple | list) else other


def _changed(
    seen: Pass, module: nn.Module, given: tuple, output: Any, inner: Callable, held: dict
) -> Any:
    return inner(seen, module, output, **held)


def _named_changed(
    seen: Pass, model: nn.Module, given: tuple, named: dict, inner: Callable, held: dict
) -> tuple[tuple, dict]:
    named = dict(named)
    inner(seen, model, named, **held)
    return given, named


# -- attention functions --------------------------------------------------------------------------

_WRAPPED: dict[str, tuple[Callable[..., Any], int]] = {}
"""Attention functions of the library's that are wrapped now, and by how many faults."""


def _interface(name: str) -> Callable[[], None]:
    """Wrap the library's attention function ``name``; gives what takes the wrapper off again."""
    table = compat.attention_functions()
    usual, users = _WRAPPED.get(name, (None, 0))
    if usual is None:
        usual = table()[name]
        table.register(name, _diverting(name, usual))
    _WRAPPED[name] = usual, users + 1

    def off() -> None:
        own, left = _WRAPPED.pop(name)
        if left > 1:
            _WRAPPED[name] = own, left - 1
        else:
            table.register(name, own)

    return off


def _diverting(name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **named: Any
    ) -> Any:
        hook = getattr(module, FLAG, {}).get(name)
        if hook is None:
            return usual(module, query, key, value, mask, **named)
        return hook.change(hook.seen, usual, module, query, key, value, mask, named)

    return attend


# -- caches ---------------------------------------------------------------------------------------


def own_cache(cache: Any) -> Any:
    """The cache of self-attention, where there is another of an encoder's states."""
    return getattr(cache, "self_attention_cache", cache)


class _Update:
    """In the place of a cache's ``update``: the same, and then what is read is changed."""

    def __init__(self, cache: Any, seen: Pass, change: Callable[..., Any]) -> None:
        self.usual, self.seen, self.change = cache.update, seen, change

    def __call__(self, keys: Tensor, values: Tensor, layer: int, *more: Any, **named: Any) -> Any:
        new = keys.shape[-2]
        all_keys, all_values = self.usual(keys, values, layer, *more, **named)
        # A buffer of fixed length is not full, and one that slides has dropped the oldest.
        past = min(all_keys.shape[-2], self.seen.past + new) - new
        if past <= 0:
            return all_keys, all_values
        return self.change(self.seen, all_keys, all_values, past, layer)


def _wrap_cache(seen: Pass, model: nn.Module, given: tuple, inner: Callable[..., Any]) -> None:
    cache = own_cache(seen.cache)
    if cache is not None and seen.cached and hasattr(cache, "update"):
        cache.update = _Update(cache, seen, inner)


def _unwrap_cache(seen: Pass, model: nn.Module, given: tuple, output: Any) -> None:
    cache = own_cache(seen.cache)
    if cache is not None:
        vars(cache).pop("update", None)
    seen.cache = None  # nothing of a caller's is kept
