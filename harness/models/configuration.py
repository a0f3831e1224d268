"""Reads a text model's configuration, under the names that the types use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_PLACEHOLDER = re.compile(
    r"(image|video|audio|vision|speech|bo[iav]|eo[iav])\w*_token(_id|_index)"
)

LEAST_TOKENS = 4
"""The length of some claims' prompts, and the number of ids they are drawn from, at least."""


def heads(config: Any) -> int:
    """Heads of attention in a layer, at most; 1 where it does not say."""
    found = [_numbers(layer, "num_attention_heads") for layer in _layers(config)]
    return max((number for numbers in found for number in numbers), default=1)


def window(config: Any) -> int | None:
    """The longest prompt of which every token sees all others, or all before it; None: any.

    The smallest sliding window or chunk, that is, of any layer.
    """
    names = ("sliding_window", "window_size", "attention_chunk_size")
    sizes = [size for layer in _layers(config) for size in _numbers(layer, *names)]
    # Half of it on either side.
    sizes += [size // 2 + 1 for size in _numbers(config, "local_attention")]
    return min(sizes, default=None)


def context(config: Any) -> int | None:
    """The longest prompt that it names, or None."""
    # -1 stands for no limit in some.
    named = ("max_position_embeddings", "max_seq_len", "max_target_positions")
    return min([*_numbers(config, *named), *_served(config)], default=None)


def _served(config: Any) -> list[int]:
    """The most tokens of a row that no expert turns away, where one takes only so many.

    "There is no guarantee that each token is processed by an expert" where more are sent to one
    than ``expert_capacity`` (docstring of transformers' ``SwitchTransformersTop1Router``): past
    it, what a token gets depends on those before it in the pass.
    """
    switch = getattr(config, "model_type", None) == "switch_transformers"
    return _numbers(config, "expert_capacity") if switch else []


def routes(config: Any) -> bool:
    """Whether there are experts, and their scores can be asked for."""
    experts = ("num_local_experts", "num_experts")
    told = hasattr(config, "output_router_logits")
    return told and any(getattr(config, name, None) for name in experts)


def placeholders(fields: dict[str, Any]) -> Iterator[Any]:
    """The ids that stand for media or mark them off, of a configuration and its parts."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from placeholders(value)
        elif _PLACEHOLDER.fullmatch(str(name)):
            yield value


def _layers(config: Any) -> list[Any]:
    """The configuration of every layer, where layers have their own; else the one of all."""
    if not getattr(config, "is_heterogeneous", False):
        return [config]
    return list(config.per_layer_config)


def _numbers(config: Any, *names: str) -> list[int]:
    """The fields of ``config`` with these names that are whole numbers above 0."""
    values = [getattr(config, name, None) for name in names]
    return [value for value in values if isinstance(value, int) and value > 0]
