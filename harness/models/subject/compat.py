"""Differences between versions of transformers, detected by inspection, not by version number.

Assay supports versions from 4.48 on.  Where a name, an argument or a method is newer, only this
module handles the difference, and names the version that introduced it.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import transformers
from packaging import version
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

from assay.harness.results.errors import Missing

if TYPE_CHECKING:
    from transformers import PreTrainedConfig as PreTrainedConfig
else:  # the name since 5.0, which keeps the old one as well
    PreTrainedConfig = getattr(transformers, "PreTrainedConfig", transformers.PretrainedConfig)

NEWEST_TESTED = "5.24"
"""The newest minor version of transformers whose capabilities are recorded."""

DTYPE_ARGUMENT = "dtype" if hasattr(PreTrainedConfig(), "dtype") else "torch_dtype"
"""The dtype argument of `from_pretrained` and `from_config`: ``dtype`` since 4.56."""

KEYS_AND_VALUES = frozenset({"DynamicLayer", "DynamicSlidingWindowLayer"})
"""Layers of a dynamic cache with keys and values, and no recurrent state."""


def untested() -> str:
    """A line where the installed transformers is newer than `NEWEST_TESTED`, else empty."""
    newest = version.parse(NEWEST_TESTED).release
    if version.parse(transformers.__version__).release[:2] <= newest:
        return ""
    return (
        f"transformers {transformers.__version__} is newer than {NEWEST_TESTED}, the newest that "
        "Assay was tested with; docs/new-release.md says how to record what its types can do"
    )


def configured_dtype(config: Any) -> torch.dtype | None:
    """The dtype that ``config`` names; None where it names none, or one for each part."""
    value = getattr(config, DTYPE_ARGUMENT, None)
    value = getattr(torch, value, None) if isinstance(value, str) else value
    return value if isinstance(value, torch.dtype) else None


def in_dtype(dtype: torch.dtype) -> dict[str, Any]:
    """The argument of `from_pretrained` and `from_config` that sets ``dtype``."""
    return {DTYPE_ARGUMENT: dtype}


def _takes(cls: type) -> frozenset[str]:
    """The parameters of a class's constructor."""
    return frozenset(inspect.signature(cls).parameters)


def from_gguf(name: str) -> dict[str, Any]:
    """The arguments of `from_pretrained` by which the weights of a GGUF file become floats.

    Since 5.2x some would stay quantised where a kernel for them can be had from the hub.
    """
    config = getattr(transformers, "GgufConfig", None)
    settings = {} if config is None else {"quantization_config": config(dequantize=True)}
    return {"gguf_file": name, **settings}


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
    if "config" in _takes(transformers.DynamicCache):
        return transformers.DynamicCache(config=config)
    return transformers.DynamicCache()


def require_configured_caches() -> None:
    """Raise `Missing` where a dynamic cache ignores sliding windows."""
    if "config" not in _takes(transformers.DynamicCache):
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
    if "offloading" in _takes(transformers.DynamicCache):
        return transformers.DynamicCache(config=config, offloading=True)
    early: Any = transformers  # types are checked against a later version
    return early.OffloadedCache()


def static_cache(model: PreTrainedModel, config: Any, batch: int, length: int) -> Any:
    """A cache of ``length`` positions for ``batch`` rows of ``model``.

    Before 4.56 it is allocated for its batch, device and dtype at once, later at the first use.
    """
    early: dict[str, Any] = {"max_batch_size": batch, "device": model.device, "dtype": model.dtype}
    takes = _takes(transformers.StaticCache)
    options = {name: value for name, value in early.items() if name in takes}
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


ATTENTION, EXPERTS = "_attn_implementation", "_experts_implementation"
"""Settings of a configuration that name how the model computes; its parts have their own."""


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


def attentions_in_force(model: PreTrainedModel) -> set[str | None]:
    """The attention implementations of the innermost parts of ``model``, which do the attending.

    They may differ from the whole model's: up to 5.19 T5's stacks kept their initial one.
    """
    parts = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    inner = [p for p in parts if sum(isinstance(m, PreTrainedModel) for m in p.modules()) == 1]
    return {getattr(part.config, "_attn_implementation", None) for part in inner}


def restore(before: list[tuple[Any, str | None]], setting: str) -> None:
    """Reset every configuration to the value of a setting that `settings` returned.

    The library's own setter gives all parts one implementation, and rejects some of those that it
    built a model with.
    """
    for config, name in before:
        if getattr(config, setting, None) != name:
            setattr(config, setting, name)


def attention_functions() -> Any:
    """The registry of attention functions by name.

    Raises `Missing` in versions without one, such as 4.48.
    """
    table = getattr(transformers, "AttentionInterface", None)
    if table is None:
        raise Missing("this version of transformers does not look attention functions up by name")
    return table()


# -- experts --------------------------------------------------------------------------------------


def set_experts(model: PreTrainedModel, name: str) -> None:
    """Switch a loaded model to the experts implementation ``name``: possible since 5.0.

    Raises `Missing` before, and the library's error for an implementation that the model lacks.
    """
    if not hasattr(model, "set_experts_implementation"):
        raise Missing("this version of transformers has one implementation of experts")
    model.set_experts_implementation(name)


def experts_functions() -> Any:
    """The registry of experts implementations by name.

    Raises `Missing` in versions without one: before 5.0.
    """
    try:
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    except ImportError as error:
        raise Missing("this version of transformers has one implementation of experts") from error
    return ALL_EXPERTS_FUNCTIONS


@contextmanager
def looking_for_samples() -> Iterator[list[Tensor]]:
    """The positions in which the library's masks look for packed samples, within a block.

    They do where a model's code passes its positions to them.
    """
    masking: Any = getattr(transformers, "masking_utils", None)
    usual = getattr(masking, "find_packed_sequence_indices", None)
    searched: list[Tensor] = []
    if usual is None:
        yield searched
        return

    def look(positions: Tensor) -> Any:
        searched.append(positions)
        return usual(positions)

    masking.find_packed_sequence_indices = look
    try:
        yield searched
    finally:
        masking.find_packed_sequence_indices = usual


def checkpointing(model: Any, settings: dict[str, Any]) -> Callable[[], None]:
    """Let a model recompute activations on the way back; returns what ends that."""
    kind = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    getattr(model, f"{kind}_checkpointing_enable")(settings)

    def end() -> None:
        getattr(model, f"{kind}_checkpointing_disable")()
        if getattr(model, "_require_grads_hook", None) is not None:
            model.disable_input_require_grads()  # the library leaves its hook (docs/defects)

    return end


def parallel(sizes: dict[str, int]) -> dict[str, Any]:
    """The argument of `from_pretrained` that spreads a model over processes, by ``sizes`` as of
    ``tp_size``.

    Raises `Missing` where this version of the library has no such argument (before 5.x).
    """
    module = importlib.util.find_spec("transformers.distributed")
    config: Any = module and importlib.import_module("transformers.distributed").DistributedConfig
    if config is None or not sizes.keys() <= _takes(config):
        raise Missing(
            f"this version of transformers has no DistributedConfig of {', '.join(sizes)}"
        )
    return {"distributed_config": config(**sizes)}


def transposed_by_shape(model: Any) -> list[str]:
    """Ends of the names of tensors that loading transposes where their shape asks for it.

    Empty before transformers 5.2, which has no such conversion.
    """
    return [
        target
        for conversion in getattr(model, "_weight_conversions", None) or ()
        for each in getattr(conversion, "operations", ())
        if getattr(each, "check_dims", False)
        for target in conversion.target_patterns
    ]
