"""Models whose weights are quantised: what is left of floats in them, and what rounds activations.

Which packages quantised a module is read off the module: the libraries have no common interface.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = (Tensor, nn.Parameter, nn.Buffer)
"""Types of tensors that hold their own numbers; a quantised one may be a subclass."""

INT8_LAYER = "Linear8bitLt"
"""The layer of bitsandbytes that quantises its input as well (LLM.int8)."""

FOUR_BITS_LAYER = "Linear4bit"
"""The layer of bitsandbytes whose weight has 4 bits."""

LAID_OUT = "packing_format_for_cpu"
"""Its weight's attribute: whether the first pass has laid it out for a kernel of the CPU."""

PACKAGES = (
    *("bitsandbytes", "torchao", "compressed_tensors", "gptqmodel", "optimum", "awq", "hqq"),
    *("aqlm", "auto_round", "eetq", "fbgemm", "spqr", "vptq", "transformers.integrations"),
)
"""Where the classes of quantised modules and tensors are from."""


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


def dense_sizes(model: nn.Module) -> dict[str, int]:
    """How many numbers each parameter has once it is unpacked, by name; without integers."""
    quantised, found = set(packed(model)), {}
    for name, weight in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if name in quantised and type(owner).__name__ == FOUR_BITS_LAYER:
            found[name] = 2 * weight.numel()  # two in a byte
        elif name in quantised or weight.is_floating_point():
            found[name] = weight.numel()
    return found


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor holds its own numbers."""
    return type(tensor) in PLAIN


def parts(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The plain tensors that ``tensor`` is made of, with names; itself where it is plain."""
    if is_plain(tensor) or not hasattr(tensor, "__tensor_flatten__"):
        yield name, tensor
        return
    for attribute in tensor.__tensor_flatten__()[0]:
        yield from parts(f"{name}.{attribute}", getattr(tensor, attribute))


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


def passes_gradients(model: nn.Module, dtype: torch.dtype) -> bool:
    """Whether the output of the first quantised layer has a gradient by its input, in ``dtype``.

    Kernels for inference have none, nor has rounding.  True where no layer is quantised.
    """
    for module in model.modules():
        if not isinstance(module, nn.Linear):
            continue
        if not _rounds_activations(module) and next(packed(module), None) is None:
            continue
        device = module.weight.device
        given = torch.ones(1, module.in_features, dtype=dtype, device=device, requires_grad=True)
        with torch.enable_grad():
            output = module(given)
            if not output.requires_grad:
                return False
            whole = output.square().sum()
            (gradient,) = torch.autograd.grad(whole, given, allow_unused=True)
        return gradient is not None and bool(gradient.any())
    return True


def rounding(model: nn.Module, dtype: torch.dtype) -> torch.dtype:
    """The dtype whose rounding is that of ``model``: its own ``dtype``, or bfloat16 where
    activations have 8 bits, which is the nearest.
    """
    return torch.bfloat16 if rounds_activations(model) else dtype


def placed_on(device: torch.device) -> dict[str, Any]:
    """The argument of `from_pretrained` by which quantised weights go to ``device`` at once.

    Some cannot be moved, and bitsandbytes would choose a GPU where there is one.  It takes
    accelerate, without which there is none: other packages' weights are loaded on the CPU.
    """
    return {"device_map": {"": device}} if find_spec("accelerate") else {}


@contextmanager
def left_as_they_are(model: nn.Module) -> Iterator[None]:
    """For a block in which a model's ``state_dict`` is taken.

    Bitsandbytes undoes the layout of its CPU kernel there, and leaves the scales in a wrong order.
    """
    states = [getattr(weight, "quant_state", None) for weight in model.parameters()]
    packed_states = [each for each in states if getattr(each, LAID_OUT, False)]
    try:
        for each in packed_states:
            setattr(each, LAID_OUT, False)
        yield
    finally:
        for each in packed_states:
            setattr(each, LAID_OUT, True)


def unpack(model: Any) -> None:
    """Do at once what compressed-tensors does in the first pass: make weights dense again."""
    compressor: Any = getattr(getattr(model, "hf_quantizer", None), "compressor", None)
    if hasattr(compressor, "decompress_model"):
        with redirect_stderr(io.StringIO()):  # bars that nothing else keeps quiet
            compressor.decompress_model(model)
