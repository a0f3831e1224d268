"""More differences between versions of transformers (`models.subject.compat`): of what only
capabilities and the rooms above them use.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from packaging import version
from torch import Tensor
from transformers import PreTrainedModel

from assay.harness.models.subject.compat import DTYPE_ARGUMENT, takes
from assay.harness.results.errors import Missing

NEWEST_TESTED = "5.24"
"""The newest minor version of transformers whose capabilities are recorded."""


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


def from_gguf(name: str) -> dict[str, Any]:
    """The arguments of `from_pretrained` by which the weights of a GGUF file become floats.

    Since 5.2x some would stay quantised where the hub has a kernel for them.
    """
    config = getattr(transformers, "GgufConfig", None)
    settings = {} if config is None else {"quantization_config": config(dequantize=True)}
    return {"gguf_file": name, **settings}


def attention_functions() -> Any:
    """The registry of attention functions by name.

    Raises `Missing` in versions without one, such as 4.48.
    """
    table = getattr(transformers, "AttentionInterface", None)
    if table is None:
        raise Missing("this version of transformers does not look attention functions up by name")
    return table()


def attentions_in_force(model: PreTrainedModel) -> set[str | None]:
    """The attention implementations of the innermost parts of ``model``, which do the attending.

    They may differ from the whole model's: up to 5.19 T5's stacks kept their initial one.
    """
    parts = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    inner = [p for p in parts if sum(isinstance(m, PreTrainedModel) for m in p.modules()) == 1]
    return {getattr(part.config, "_attn_implementation", None) for part in inner}


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
    if config is None or not sizes.keys() <= takes(config):
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
