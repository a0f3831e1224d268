"""Reads a text model's configuration by the field names that the types use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from assay.harness.models.subject import rotations

_PLACEHOLDER = re.compile(
    r"(image|video|audio|vision|speech|bo[iav]|eo[iav])\w*_token(_id|_index)"
)

HEADS = re.compile(r"num_(attention|\w*key_value)_heads")
"""Names of the fields with a number of attention heads."""

WINDOWS = ("sliding_window", "window_size", "attention_chunk_size")
"""Names of the fields with a window of attention, or a chunk."""

LEAST_TOKENS = 4
"""The least length of some claims' prompts, and the least number of ids to draw them from."""


def heads(config: Any) -> int:
    """The most attention heads in a layer; 1 where the configuration does not say."""
    counts = [_numbers(layer, "num_attention_heads") for layer in _layers(config)]
    return max((number for numbers in counts for number in numbers), default=1)


def head_counts(config: Any) -> dict[str, int]:
    """The numbers of heads of every kind that any layer has, by the name of the field; of several
    numbers an odd one.
    """
    counts: dict[str, int] = {}
    for layer in _layers(config):
        for name in (field for field in layer.to_dict() if HEADS.fullmatch(field)):
            for number in _numbers(layer, name):
                counts[name] = max(counts.get(name, 0), number, key=lambda n: (n % 2, n))
    return counts


def window(config: Any) -> int | None:
    """The longest prompt within every window: the smallest sliding window or chunk of any layer.

    None where there is no limit.
    """
    sizes = [size for layer in _layers(config) for size in _numbers(layer, *WINDOWS)]
    # Half of it on either side.
    sizes += [size // 2 + 1 for size in _numbers(config, "local_attention")]
    return min(sizes, default=None)


def context(config: Any) -> int | None:
    """The configuration's longest prompt, or None.

    Where a rotation's frequencies depend on the length of a pass, the longest before they do:
    beyond it a token's output depends on those after it, by design.
    """
    # Some write -1 for no limit.
    named = ("max_position_embeddings", "max_seq_len", "max_target_positions")
    switch = [rotations.switch(config) or 0]
    sizes = [*_numbers(config, *named), *_served(config), *filter(None, switch)]
    return min(sizes, default=None)


def _served(config: Any) -> list[int]:
    """The most tokens of a row that no expert drops, where experts have a capacity.

    "There is no guarantee that each token is processed by an expert" where more are sent to one
    than ``expert_capacity`` (docstring of transformers' ``SwitchTransformersTop1Router``): beyond
    it, a token's output depends on those before it in the pass.
    """
    switch = getattr(config, "model_type", None) == "switch_transformers"
    return _numbers(config, "expert_capacity") if switch else []


def routes(config: Any) -> bool:
    """Whether there are experts, and the model can return their scores."""
    experts = ("num_local_experts", "num_experts")
    returns_scores = hasattr(config, "output_router_logits")
    return returns_scores and any(getattr(config, name, None) for name in experts)


def experts(config: Any) -> int:
    """Among how many experts a token's are chosen; 1 or less where nothing is chosen."""
    names = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    own = max(_numbers(config, *names), default=0) + sum(_numbers(config, "zero_expert_num"))
    part = getattr(config, "ffn_config", None)
    return own if part is None else max(own, experts(part))


def placeholders(fields: dict[str, Any]) -> Iterator[Any]:
    """The ids of media placeholders and delimiters in a configuration and its parts."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from placeholders(value)
        elif _PLACEHOLDER.fullmatch(str(name)):
            yield value


def _layers(config: Any) -> list[Any]:
    """Each layer's configuration, where layers have their own; else the one for all."""
    if not getattr(config, "is_heterogeneous", False):
        return [config]
    return list(config.per_layer_config)


def _numbers(config: Any, *names: str) -> list[int]:
    """The fields of ``config`` with these names that are positive integers."""
    values = [getattr(config, name, None) for name in names]
    return [value for value in values if isinstance(value, int) and value > 0]
