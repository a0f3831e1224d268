"""Quantised weights as their packages keep them: parts, layouts, gradients, where they load."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models.machine.weights import is_plain, packed, rounds_activations

LAID_OUT = "packing_format_for_cpu"
"""Its weight's attribute: whether the first pass has laid it out for a kernel of the CPU."""


def parts(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The plain tensors that ``tensor`` is made of, with names; itself where it is plain."""
    if is_plain(tensor) or not hasattr(tensor, "__tensor_flatten__"):
        yield name, tensor
        return
    for attribute in tensor.__tensor_flatten__()[0]:
        yield from parts(f"{name}.{attribute}", getattr(tensor, attribute))


def passes_gradients(model: nn.Module, dtype: torch.dtype) -> bool:
    """Whether the output of the first quantised layer has a gradient by its input, in ``dtype``.

    Kernels for inference have none, nor has rounding.  True where no layer is quantised.
    """
    for module in model.modules():
        if not isinstance(module, nn.Linear):
            continue
        if not rounds_activations(module) and next(packed(module), None) is None:
            continue
        device = module.weight.device
        inputs = torch.ones(1, module.in_features, dtype=dtype, device=device, requires_grad=True)
        with torch.enable_grad():
            output = module(inputs)
            if not output.requires_grad:
                return False
            whole = output.square().sum()
            (gradient,) = torch.autograd.grad(whole, inputs, allow_unused=True)
        return gradient is not None and bool(gradient.any())
    return True


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
