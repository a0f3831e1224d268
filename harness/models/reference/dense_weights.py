"""Turns quantised weights of a copy into dense ones: the float64 reference has the same weights.

Transformers' own `dequantize` is for bitsandbytes alone, rounds to 16 bits, and replaces modules,
which loses their hooks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from assay.harness.models.machine.quantised_weights import LAID_OUT
from assay.harness.models.machine.shortage import ENDS, pass_on
from assay.harness.models.machine.weights import FOUR_BITS_LAYER, INT8_LAYER, is_plain, packed
from assay.harness.models.reference.copying import cast
from assay.harness.models.reference.upcasting import Unpacked, as_parameter
from assay.harness.results.errors import Missing, brief, listed

Model = TypeVar("Model", bound=nn.Module)

LEVELS = 127
"""The largest integer of LLM.int8, which stands for a row's largest weight."""

ROWS_TOGETHER = 32
"""Rows whose 4-bit weights bitsandbytes interleaves for a kernel of the CPU."""

OF_SCHEMES = ("_scale", "_zero_point", "_g_idx", "_shape")
"""The ends of the names of a scheme's numbers, which dense weights do not need."""


def in_dtype(model: Model, dtype: torch.dtype = torch.float64) -> Model:
    """``model`` itself, a copy to be changed, with all its weights in ``dtype``.

    What was quantised has the values that its integers stand for; activations are not rounded.
    Raises `Missing` where some weights remain quantised.
    """
    for module in model.modules():
        for name, weight in list(module._parameters.items()):
            if weight is not None and (dense := _dense(module, name, weight)) is not None:
                setattr(module, name, nn.Parameter(dense.to(dtype), requires_grad=False))
    with_plain_layers(model)
    _require_none(packed(model))
    cast(model, dtype)
    return model


def unpacked_where_used(model: nn.Module) -> dict[int, Tensor]:
    """Float64 parameters that unpack the quantised weights of ``model`` wherever they are used, by
    the `id` of those.

    Raises `Missing` where some weights cannot be converted to float64.
    """
    parameters, left = dict[int, Tensor](), set(packed(model))
    for prefix, module in model.named_modules():
        for name, weight in module._parameters.items():
            if weight is None or (dense := _dense(module, name, weight)) is None:
                continue
            left.discard(f"{prefix}.{name}".removeprefix("."))
            unpack = functools.partial(_unpacked, module, name)
            parameters[id(weight)] = as_parameter(Unpacked(unpack, dense.shape, dense.device))
    _require_none(left)
    return parameters


def _unpacked(module: nn.Module, name: str) -> Tensor:
    """A weight's current values: the first pass through some kernels changes its layout."""
    dense = _dense(module, name, module._parameters[name])
    assert dense is not None, f"{name} was quantised"
    return dense


def with_plain_layers(model: nn.Module) -> None:
    """Let the layers of a copy compute with dense weights, in place, and round nothing."""
    for module in model.modules():
        _of_scheme(module)
        if type(module).__name__ in (INT8_LAYER, FOUR_BITS_LAYER):
            module.__class__ = nn.Linear  # keeps its hooks, which a new module would not have


def _require_none(left: Iterable[str]) -> None:
    if names := sorted(left):
        raise Missing(f"the quantised weights {listed(names)} cannot be converted to float64")


def _dense(module: Any, name: str, weight: Any) -> Tensor | None:
    """A weight's values in float64; None where it is not quantised, or how is not known."""
    layer = type(module).__name__
    try:
        if layer == INT8_LAYER and name == "weight" and not weight.is_floating_point():
            scales = weight.SCB if module.state.SCB is None else module.state.SCB
            values: Tensor = weight.data.double() * scales.double()[:, None] / LEVELS
            return values
        if layer == FOUR_BITS_LAYER and name == "weight" and not weight.is_floating_point():
            return _of_four_bits(weight)
        if not is_plain(weight):
            return _of_subclass(weight).double()
    except ENDS as error:  # whatever a package raises
        pass_on(error)
        raise Missing(
            f"a quantised weight cannot be converted to float64 ({brief(error)})"
        ) from error
    return None


def _of_four_bits(weight: Any) -> Tensor:
    """The values of a weight of bitsandbytes, [rows, columns]."""
    state = weight.quant_state
    if not getattr(state, LAID_OUT, False):
        from bitsandbytes.functional import dequantize_4bit

        dense: Tensor = dequantize_4bit(weight.data, state)
        return dense.double()
    # The first pass on some processors lays rows out for a kernel: the package's own function does
    # not know that layout, and its inverse loses the scales.
    rows, half = weight.shape
    pairs = weight.data.reshape(-1, ROWS_TOGETHER)
    codes = torch.cat([pairs & 15, pairs >> 4], -1)
    codes = codes.reshape(rows // ROWS_TOGETHER, half, ROWS_TOGETHER, 2).transpose(1, 2)
    scales = state.absmax.double().T.repeat_interleave(state.blocksize, 1)
    values: Tensor = state.code.double()[codes.reshape(rows, 2 * half).long()] * scales
    return values


def _of_subclass(weight: Any) -> Tensor:
    try:
        dense: Tensor = weight.dequantize(torch.float32)  # else each is rounded to 16 bits
    except TypeError:
        dense = weight.dequantize()
    return dense


def _of_scheme(module: Any) -> None:
    """Let a module of compressed-tensors, whose weight is dense, round nothing any more."""
    if getattr(module, "quantization_scheme", None) is None:
        return
    module.quantization_enabled = False
    for name in list(module._parameters):
        if name.endswith(OF_SCHEMES):
            delattr(module, name)
