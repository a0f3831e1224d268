"""What a fault's change is given: the pass, a call of attention, what is read from a cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn


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

    def begin(
        self, is_encoder_decoder: bool, cache_name: str | None, named: dict[str, Any]
    ) -> None:
        """Read the arguments of the whole model."""
        first = "decoder_" if is_encoder_decoder else ""
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


def own_cache(cache: Any) -> Any:
    """The cache of self-attention, where there is another of an encoder's states."""
    return getattr(cache, "self_attention_cache", cache)


@dataclass(frozen=True)
class AttentionCall:
    """A ``module``'s call of an attention function, in the pass ``seen``.

    ``query`` [rows, heads, new, width], ``key`` and ``value`` [rows, heads, all, width], of which
    there may be fewer heads; ``mask`` as the library gives it: bool, additive or None; ``more``
    are the other arguments by name.
    """

    seen: Pass
    usual: Callable[..., Any]
    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any
    more: dict[str, Any]

    def attend(self, **changed: Any) -> Any:
        """What the function gives; of its arguments, those ``changed`` are others."""
        own = [changed.pop(n, getattr(self, n)) for n in ("query", "key", "value", "mask")]
        return self.usual(self.module, *own, **{**self.more, **changed})


@dataclass(frozen=True)
class ExpertsCall:
    """A ``module``'s call of a function that computes its experts, in the pass ``seen``.

    ``states`` [tokens, hidden], the ``chosen`` experts' numbers and their ``weights``, both
    [tokens, experts taken]; ``more`` are further arguments by name.
    """

    seen: Pass
    usual: Callable[..., Any]
    module: nn.Module
    states: Tensor
    chosen: Tensor
    weights: Tensor
    more: dict[str, Any]

    def weighed(self, weights: Tensor) -> Any:
        """What the function gives with other ``weights``."""
        return self.usual(self.module, self.states, self.chosen, weights, **self.more)


@dataclass(frozen=True)
class CacheRead:
    """What the attention of layer number ``layer`` reads of its cache, in the pass ``seen``.

    ``keys`` and ``values`` are [rows, heads, all, width], ``past`` of them from earlier calls.
    """

    seen: Pass
    keys: Tensor
    values: Tensor
    past: int
    layer: int

    def changed(self, change: Callable[[Tensor], Tensor]) -> CacheRead:
        """The same after a ``change`` of keys and values."""
        return replace(self, keys=change(self.keys), values=change(self.values))

    def past_changed(self, change: Callable[[Tensor], Tensor]) -> CacheRead:
        """The same after a ``change`` of the past ones among keys and values."""
        past = self.past
        return self.changed(
            lambda t: torch.cat([change(t[..., :past, :]), t[..., past:, :]], dim=-2)
        )
