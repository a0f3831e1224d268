"""Arguments of a fault's change: the forward pass, a call of attention, a read of a cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models.capabilities import serving
from assay.harness.models.subject import roles
from assay.harness.models.subject.roles import Bound, Role

UNBOUND = Bound({}, frozenset(), open=True)
"""The arguments of a pass that has not begun."""


class Pass:
    """The current forward pass: ``past`` tokens in the cache, ``new`` ones, ``rows``.

    ``padded`` marks the new tokens that are padding (bool [rows, new]) or is None; ``embedded``
    says whether the input is embeddings; ``positions`` (argument ``positions_name``) and ``ids``
    are the caller's, or None; ``training`` is the mode of the module that is called, ``labelled``
    says whether labels are given, ``served`` whether the library's server makes the pass.
    ``window`` and ``layers`` are the model's.  Faults keep state in ``notes``.
    """

    def __init__(self, window: int | None = None, layers: int = 0) -> None:
        self.window, self.layers = window, layers
        self.past, self.new, self.rows = 0, 0, 0
        self.padded: Tensor | None = None
        self.embedded = self.training = self.labelled = self.served = False
        self.positions: Tensor | None = None
        self.positions_name = ""
        self.bound = UNBOUND
        self.ids: Tensor | None = None
        self.cache: Any = None
        self.notes: dict[Any, Any] = {}

    @property
    def cached(self) -> bool:
        """Whether there is a past."""
        return self.past > 0

    def name(self, kwargs: dict[str, Any], role: Role) -> str | None:
        """The name by which the whole model's arguments contain a role's value, or None."""
        bound = self.bound[role]
        return bound if kwargs.get(bound) is not None else roles.name_in(kwargs, role)

    def begin(self, bound: Bound, cache_name: str | None, kwargs: dict[str, Any]) -> None:
        """Read the arguments of the whole model."""
        self.bound = bound
        self.ids = kwargs.get(bound[Role.IDS])
        embeddings = kwargs.get(bound[Role.EMBEDDINGS])
        self.embedded = self.ids is None and embeddings is not None
        tokens = embeddings if self.ids is None else self.ids
        self.rows, self.new = (0, 0) if tokens is None else (tokens.shape[0], tokens.shape[1])
        self.served = serving.pages_in(kwargs) is not None
        self.cache = kwargs.get(cache_name) if cache_name and not self.served else None
        self.past = past_length(self.cache)
        self.positions_name = bound[Role.POSITIONS]
        self.positions = kwargs.get(self.positions_name)
        mask = kwargs.get(bound[Role.MASK])
        self.labelled = kwargs.get(bound[Role.LABELS]) is not None
        self.padded = None
        if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] >= self.new > 0:
            padded = mask[:, -self.new :] == 0
            self.padded = padded if bool((mask == 0).any()) else None

    def indices(self, like: Tensor) -> Tensor:
        """The index of every new token, counted from the first token of all: [new]."""
        return torch.arange(self.past, self.past + self.new, device=like.device)


def past_length(cache: Any) -> int:
    """Tokens in a cache; 1 for a recurrence that has begun, which does not count them."""
    if cache is None:
        return 0
    try:
        return int(cache.get_seq_length())
    except (ValueError, StopIteration):
        return int(cache.has_previous_state())


def own_cache(cache: Any) -> Any:
    """The cache of self-attention, where there is another of an encoder's states."""
    return getattr(cache, "self_attention_cache", cache)


@dataclass(frozen=True)
class AttentionCall:
    """A ``module``'s call of an attention function, in the pass ``forward``.

    ``query`` [rows, heads, new, width], ``key`` and ``value`` [rows, heads, all, width], of which
    there may be fewer heads; ``mask`` as the library passes it: bool, additive or None; ``kwargs``
    are the other arguments by name.
    """

    forward: Pass
    usual: Callable[..., Any]
    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any
    kwargs: dict[str, Any]

    def attend(self, **changed: Any) -> Any:
        """The function's result, with the arguments in ``changed`` replaced."""
        own = [changed.pop(n, getattr(self, n)) for n in ("query", "key", "value", "mask")]
        return self.usual(self.module, *own, **{**self.kwargs, **changed})


@dataclass(frozen=True)
class ExpertsCall:
    """A ``module``'s call of a function that computes its experts, in the pass ``forward``.

    ``states`` [tokens, hidden], the ``chosen`` experts' numbers and their ``weights``, both
    [tokens, experts taken]; ``kwargs`` are further arguments by name.
    """

    forward: Pass
    usual: Callable[..., Any]
    module: nn.Module
    states: Tensor
    chosen: Tensor
    weights: Tensor
    kwargs: dict[str, Any]

    def weighed(self, weights: Tensor) -> Any:
        """The function's result with other ``weights``."""
        return self.usual(self.module, self.states, self.chosen, weights, **self.kwargs)


@dataclass(frozen=True)
class CacheRead:
    """Entries that the attention of layer ``layer`` reads from its cache, in the pass ``forward``.

    ``keys`` and ``values`` are [rows, heads, all, width], ``past`` of them from earlier calls.
    """

    forward: Pass
    keys: Tensor
    values: Tensor
    past: int
    layer: int

    def changed(self, change: Callable[[Tensor], Tensor]) -> CacheRead:
        """A read with ``change`` applied to keys and values."""
        return replace(self, keys=change(self.keys), values=change(self.values))

    def past_changed(self, change: Callable[[Tensor], Tensor]) -> CacheRead:
        """A read with ``change`` applied to the past keys and values."""
        past = self.past
        return self.changed(
            lambda t: torch.cat([change(t[..., :past, :]), t[..., past:, :]], dim=-2)
        )
