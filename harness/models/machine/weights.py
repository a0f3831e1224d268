"""What a model's weights are: dense or quantised, in memory or offloaded.

Which packages quantised a module is read off the module: the libraries have no common interface.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

PLAIN = (Tensor, nn.Parameter, nn.Buffer)
"""Types of tensors that hold their own numbers; a quantised one may be a subclass."""

INT8_LAYER = "Linear8bitLt"
"""The layer of bitsandbytes that quantises its input as well (LLM.int8)."""

FOUR_BITS_LAYER = "Linear4bit"
"""The layer of bitsandbytes whose weight has 4 bits."""

PACKAGES = (
    *("bitsandbytes", "torchao", "compressed_tensors", "gptqmodel", "optimum", "awq", "hqq"),
    *("aqlm", "auto_round", "eetq", "fbgemm", "spqr", "vptq", "transformers.integrations"),
)
"""Where the classes of quantised modules and tensors are from."""


def is_dispatched(model: nn.Module) -> bool:
    """Whether accelerate moves this model's inputs or weights."""
    return getattr(model, "hf_device_map", None) is not None


def offloaded(model: nn.Module) -> list[str]:
    """The parameters that are not in memory, by name."""
    return [name for name, parameter in model.named_parameters() if parameter.is_meta]


def is_quantised(model: nn.Module) -> bool:
    """Whether a model was loaded quantised, or holds a weight that is."""
    loaded = getattr(model, "hf_quantizer", None) is not None
    return loaded or next(packed(model), None) is not None


def packed(model: nn.Module) -> Iterator[str]:
    """The names of quantised parameters and buffers."""
    for prefix, module in model.named_modules():
        inside = _is_of_package(module)
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is None or (_is_wide(tensor) and not _is_of_package(tensor)):
                continue
            if inside or _is_of_package(tensor):
                yield f"{prefix}.{name}".removeprefix(".")


def _is_of_package(thing: object) -> bool:
    """Whether its class is of one of `PACKAGES`."""
    return type(thing).__module__.startswith(PACKAGES)


def _is_wide(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.itemsize > 1


def has_quantised_parts(model: nn.Module) -> bool:
    """Whether a layer or a weight is of a class that a copy in floating point has to replace."""
    return next(packed(model), None) is not None or any(
        _is_of_package(module)
        or getattr(module, "quantization_scheme", None) is not None
        or not all(w is None or is_plain(w) for w in module._parameters.values())
        for module in model.modules()
    )


def dense_sizes(model: nn.Module) -> dict[str, int]:
    """How many numbers each parameter has once it is unpacked, by name; without integers."""
    quantised, sizes = set(packed(model)), {}
    for name, weight in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if name in quantised and type(owner).__name__ == FOUR_BITS_LAYER:
            sizes[name] = 2 * weight.numel()  # two in a byte
        elif name in quantised or weight.is_floating_point():
            sizes[name] = weight.numel()
    return sizes


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor holds its own numbers."""
    return type(tensor) in PLAIN


def rounds_activations(model: nn.Module) -> bool:
    """Whether a module rounds its input or output to 8 bits or fewer, by the row or further."""
    return any(map(_rounds_activations, model.modules()))


def _rounds_activations(module: nn.Module) -> bool:
    if type(module).__name__ == INT8_LAYER:
        return True
    if any(getattr(w, "act_quant_kwargs", None) is not None for w in module._parameters.values()):
        return True
    scheme = getattr(module, "quantization_scheme", None)
    both = (getattr(scheme, name, None) for name in ("input_activations", "output_activations"))
    return bool(getattr(module, "quantization_enabled", True)) and any(both)


def rounding(model: nn.Module, dtype: torch.dtype) -> torch.dtype:
    """The dtype whose rounding is that of ``model``: its own ``dtype``, or bfloat16 where
    activations have 8 bits, which is the nearest.
    """
    return torch.bfloat16 if rounds_activations(model) else dtype
