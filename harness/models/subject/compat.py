"""Differences between versions of transformers, detected by inspection, not by version number.

Assay supports versions from 4.48 on.  Where a name, an argument or a method is newer, only this
module and `models.capabilities.releases` handle the difference, and name the version that
introduced it.
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
else:  # the name since 5.0, which keeps the old one as well
    PreTrainedConfig = getattr(transformers, "PreTrainedConfig", transformers.PretrainedConfig)

DTYPE_ARGUMENT = "dtype" if hasattr(PreTrainedConfig(), "dtype") else "torch_dtype"
"""The dtype argument of `from_pretrained` and `from_config`: ``dtype`` since 4.56."""

KEYS_AND_VALUES = frozenset({"DynamicLayer", "DynamicSlidingWindowLayer"})
"""Layers of a dynamic cache with keys and values, and no recurrent state."""


def in_dtype(dtype: torch.dtype) -> dict[str, Any]:
    """The argument of `from_pretrained` and `from_config` that sets ``dtype``."""
    return {DTYPE_ARGUMENT: dtype}


def takes(cls: type) -> frozenset[str]:
    """The parameters of a class's constructor."""
    return frozenset(inspect.signature(cls).parameters)


# -- what a model is ------------------------------------------------------------------------------

WRAPPED = "wrapped"
"""The model type of a plain module or a function (`models.subject.wrapped`)."""


def is_wrapped(model: PreTrainedModel) -> bool:
    """Whether ``model`` wraps a plain module or a function."""
    return model.config.model_type == WRAPPED


def is_of_the_library(model: Any) -> bool:
    """Whether the model's class is one of transformers."""
    return type(model).__module__.startswith("transformers.")


def can_generate(model: PreTrainedModel) -> bool:
    """Whether ``model`` says that it generates.

    Before 4.50 a masked model also says so, where its type can be a decoder.
    """
    name = type(model).__name__
    masked = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values()
    generating = (
        *modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(),
        *modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.values(),
    )
    return bool(model.can_generate()) and (name in generating or name not in masked)


# -- caches ---------------------------------------------------------------------------------------


def configured_cache(config: Any) -> Any:
    """A growing cache, configured for the layers of ``config``.

    Before 4.56 a cache takes no configuration: it stores the keys and values of all tokens.
    """
    if "config" in takes(transformers.DynamicCache):
        return transformers.DynamicCache(config=config)
    return transformers.DynamicCache()


def require_configured_caches() -> None:
    """Raise `Missing` where a dynamic cache ignores sliding windows."""
    if "config" not in takes(transformers.DynamicCache):
        raise Missing("in this version of transformers dynamic caches ignore sliding windows")


def require_room_for_state(model: PreTrainedModel, cache: Any) -> None:
    """Raise `Missing` where ``model`` keeps a recurrent state that ``cache`` has no room for.

    Such models had various caches of their own until 5.x added layers for states to the common
    cache.  Only a private attribute says that a model has a state.
    """
    kinds = {type(layer).__name__ for layer in getattr(cache, "layers", ())}
    if getattr(model, "_is_stateful", False) and kinds <= KEYS_AND_VALUES:
        raise Missing(
            "this version of transformers keeps the model's recurrent state in a cache of its own"
        )


def require_cache_objects(model: PreTrainedModel) -> None:
    """Raise `Missing` where ``model`` takes its cache as tuples only: some did before 4.54.

    A private attribute says so; it is gone since all models take objects.
    """
    if getattr(model, "_supports_cache_class", True) is False:
        raise Missing(
            "in this version of transformers the model takes its cache as tuples, not as an object"
        )


def offloaded_cache(config: Any) -> Any:
    """A cache stored off the device: an argument since 4.56, a class of its own before."""
    if "offloading" in takes(transformers.DynamicCache):
        return transformers.DynamicCache(config=config, offloading=True)
    early: Any = transformers  # types are checked against a later version
    return early.OffloadedCache()


def static_cache(model: PreTrainedModel, config: Any, batch: int, length: int) -> Any:
    """A cache of ``length`` positions for ``batch`` rows of ``model``.

    Before 4.56 it is allocated for its batch, device and dtype at once, later at the first use.
    """
    early: dict[str, Any] = {"max_batch_size": batch, "device": model.device, "dtype": model.dtype}
    options = {n: value for n, value in early.items() if n in takes(transformers.StaticCache)}
    return transformers.StaticCache(config=config, max_cache_len=length, **options)


def places(cache: Any, n: int, device: torch.device) -> Tensor:
    """The positions of ``n`` tokens that continue from ``cache``, [n].

    Before 5.x a state space model does not count the tokens that it has read: callers pass them.
    """
    past = getattr(cache, COUNT, 0)
    return torch.arange(past, past + n, device=device)


def count(cache: Any, before: Any, n: int) -> None:
    """Record on ``cache`` that it has read ``n`` tokens more than ``before``."""
    if hasattr(cache, "__dict__"):
        setattr(cache, COUNT, getattr(before, COUNT, 0) + n)


COUNT = "assay_seen"
"""The attribute of a cache that counts its tokens, so that copies keep the count."""

# -- attention ------------------------------------------------------------------------------------


def set_attention(model: PreTrainedModel, name: str) -> None:
    """Switch a loaded model to the attention implementation ``name``: possible since 4.53.

    Raises `Missing` before, and the library's error for an implementation that the model lacks.
    """
    if not hasattr(model, "set_attn_implementation"):
        raise Missing("this version of transformers cannot switch the attention of a loaded model")
    model.set_attn_implementation(name)


ATTENTION = "_attn_implementation"
"""The setting of a configuration that names how the model attends; its parts have their own."""


def settings(model: PreTrainedModel, setting: str) -> list[tuple[Any, str | None]]:
    """Every configuration of ``model``, outer before inner ones, and its value of a setting."""
    configs: dict[int, Any] = {}
    waiting: list[Any] = [m.config for m in model.modules() if isinstance(m, PreTrainedModel)]
    while waiting:
        config = waiting.pop(0)
        if config is None or id(config) in configs:
            continue
        configs[id(config)] = config
        parts = [getattr(config, name, None) for name in getattr(config, "sub_configs", {})]
        waiting[:0] = parts
    return [(config, getattr(config, setting, None)) for config in configs.values()]


def restore(before: list[tuple[Any, str | None]], setting: str) -> None:
    """Reset every configuration to the value of a setting that `settings` returned.

    The library's own setter gives all parts one implementation, and rejects some of those that it
    built a model with.
    """
    for config, name in before:
        if getattr(config, setting, None) != name:
            setattr(config, setting, name)
