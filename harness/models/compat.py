"""Differences between versions of transformers, found by inspection and not by version number.

Everything from 4.48 on is meant to run.  Where a name, an argument or a method came later, the
difference is here and nowhere else, with the version that brought it.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

from assay.harness.results.errors import Missing

if TYPE_CHECKING:
    from transformers import PreTrainedConfig as PreTrainedConfig
else:  # the name since 5.0, which keeps the other as well
    PreTrainedConfig = getattr(transformers, "PreTrainedConfig", transformers.PretrainedConfig)

DTYPE_ARGUMENT = "dtype" if hasattr(PreTrainedConfig(), "dtype") else "torch_dtype"
"""What `from_pretrained` and `from_config` call the dtype of a model: ``dtype`` since 4.56."""

KEYS_AND_VALUES = frozenset({"DynamicLayer", "DynamicSlidingWindowLayer"})
"""Layers of a dynamic cache that hold keys and values, and no recurrent state."""


def in_dtype(dtype: torch.dtype) -> dict[str, Any]:
    """The argument of `from_pretrained` and `from_config` that asks for ``dtype``."""
    return {DTYPE_ARGUMENT: dtype}


def _takes(made: type) -> frozenset[str]:
    """The names of what a class is made with."""
    return frozenset(inspect.signature(made).parameters)


# -- what a model is ------------------------------------------------------------------------------


def can_generate(model: PreTrainedModel) -> bool:
    """Whether ``model`` says that it generates.

    Before 4.50 a masked model says so, too, where its type can be made a decoder.
    """
    name = type(model).__name__
    masked = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values()
    generating = (
        *modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(),
        *modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.values(),
    )
    return bool(model.can_generate()) and (name in generating or name not in masked)


# -- caches ---------------------------------------------------------------------------------------


def told_cache(config: Any) -> Any:
    """A cache that grows, told of the layers that it is for.

    Before 4.56 a cache cannot be told: it holds the keys and values of all tokens.
    """
    if "config" in _takes(transformers.DynamicCache):
        return transformers.DynamicCache(config=config)
    return transformers.DynamicCache()


def require_told_caches() -> None:
    """Raise `Missing` where a dynamic cache cannot be one of windows."""
    if "config" not in _takes(transformers.DynamicCache):
        raise Missing("in this version of transformers dynamic caches ignore sliding windows")


def require_room_for_state(model: PreTrainedModel, cache: Any) -> None:
    """Raise `Missing` where ``model`` keeps a recurrent state that ``cache`` has no room for.

    Such models had caches of their own, each another, until 5.x gave the common cache layers for
    states.  That a model has a state it says under a private name only.
    """
    kinds = {type(layer).__name__ for layer in getattr(cache, "layers", ())}
    if getattr(model, "_is_stateful", False) and kinds <= KEYS_AND_VALUES:
        raise Missing(
            "this version of transformers keeps the model's recurrent state in a cache of its own"
        )


def require_cache_objects(model: PreTrainedModel) -> None:
    """Raise `Missing` where ``model`` takes its cache as tuples only: some did before 4.54.

    Such models say so under a private name, which is gone since all take objects.
    """
    if getattr(model, "_supports_cache_class", True) is False:
        raise Missing(
            "in this version of transformers the model takes its cache as tuples, not as an object"
        )


def offloaded_cache(config: Any) -> Any:
    """A cache that is kept off the device: an argument since 4.56, a class of its own before."""
    if "offloading" in _takes(transformers.DynamicCache):
        return transformers.DynamicCache(config=config, offloading=True)
    early: Any = transformers  # which is not the one that types are checked against
    return early.OffloadedCache()


def static_cache(model: PreTrainedModel, config: Any, batch: int, length: int) -> Any:
    """A cache of ``length`` places for ``batch`` rows of ``model``.

    Before 4.56 it is made for its batch, device and dtype at once, later when it is first filled.
    """
    early: dict[str, Any] = {"max_batch_size": batch, "device": model.device, "dtype": model.dtype}
    takes = _takes(transformers.StaticCache)
    taken = {name: value for name, value in early.items() if name in takes}
    return transformers.StaticCache(config=config, max_cache_len=length, **taken)


def places(cache: Any, n: int, device: torch.device) -> Tensor:
    """Where ``n`` tokens that go on from ``cache`` stand, [n].

    Before 5.x a state space model does not count what it has read: it is told.
    """
    past = getattr(cache, SEEN, 0)
    return torch.arange(past, past + n, device=device)


def count(cache: Any, before: Any, n: int) -> None:
    """Write on ``cache`` that it has read ``n`` tokens more than ``before`` had."""
    if hasattr(cache, "__dict__"):
        setattr(cache, SEEN, getattr(before, SEEN, 0) + n)


SEEN = "assay_seen"
"""On the cache itself, so that its copies have it, too."""

# -- attention ------------------------------------------------------------------------------------


def set_attention(model: PreTrainedModel, name: str) -> None:
    """Have a model that is made attend by the implementation ``name``: possible since 4.53.

    Raises `Missing` before, and what the library raises for one that the model has not.
    """
    if not hasattr(model, "set_attn_implementation"):
        raise Missing("this version of transformers cannot switch the attention of a loaded model")
    model.set_attn_implementation(name)


ATTENTION, EXPERTS = "_attn_implementation", "_experts_implementation"
"""Settings of a configuration that name how the model computes; its parts have their own."""


def settings(model: PreTrainedModel, setting: str) -> list[tuple[Any, str | None]]:
    """Every configuration of ``model``, wholes before their parts, and its value of a setting."""
    found: dict[int, Any] = {}
    waiting: list[Any] = [m.config for m in model.modules() if isinstance(m, PreTrainedModel)]
    while waiting:
        config = waiting.pop(0)
        if config is None or id(config) in found:
            continue
        found[id(config)] = config
        parts = [getattr(config, name, None) for name in getattr(config, "sub_configs", {})]
        waiting[:0] = parts
    return [(config, getattr(config, setting, None)) for config in found.values()]


def attentions_in_force(model: PreTrainedModel) -> set[str | None]:
    """How the parts of ``model`` that attend were told to: those that hold no other part.

    It need not be what the whole was told: T5's stacks kept what they were made with up to 5.19.
    """
    parts = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    inner = [p for p in parts if sum(isinstance(m, PreTrainedModel) for m in p.modules()) == 1]
    return {getattr(part.config, "_attn_implementation", None) for part in inner}


def restore(before: list[tuple[Any, str | None]], setting: str) -> None:
    """Give every configuration the value of a setting that `settings` found.

    Not by the library's own setter: it gives all parts one implementation, and refuses some of
    those that it made a model with.
    """
    for config, name in before:
        if getattr(config, setting, None) != name:
            setattr(config, setting, name)


def attention_functions() -> Any:
    """The table in which models look their attention functions up by name.

    Raises `Missing` in versions that have none, as 4.48.
    """
    table = getattr(transformers, "AttentionInterface", None)
    if table is None:
        raise Missing("this version of transformers does not look attention functions up by name")
    return table()


# -- experts --------------------------------------------------------------------------------------


def set_experts(model: PreTrainedModel, name: str) -> None:
    """Have a model that is made compute its experts by the implementation ``name``: since 5.0.

    Raises `Missing` before, and what the library raises for one that the model has not.
    """
    if not hasattr(model, "set_experts_implementation"):
        raise Missing("this version of transformers has one implementation of experts")
    model.set_experts_implementation(name)


def experts_functions() -> Any:
    """The table in which models look up by name how to compute their experts.

    Raises `Missing` in versions that have none: before 5.0.
    """
    try:
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    except ImportError as error:
        raise Missing("this version of transformers has one implementation of experts") from error
    return ALL_EXPERTS_FUNCTIONS
