"""The scales of quantised weights: whether the files hold them, and what weights they make."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from assay.harness.models.loading.tensors import Stored, StoredTensor
from assay.harness.results.errors import BadInput, listed

if TYPE_CHECKING:  # scales that are missing are named before torch is imported
    from torch import Tensor

EIGHT_BITS = frozenset({"float8_e4m3fn", "float8_e5m2", "int8"})
"""Dtypes of packed weights by the method fp8; int8 holds two numbers of 4 bits."""

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Numbers of 4 bits (OCP Microscaling Formats 1.0, section 5.3.3); the fourth bit is the sign."""

E8M0_BIAS = 127
"""A scale in a byte is 2 to the power of the byte less this (section 5.4.1)."""


def method(quantisation: dict[str, Any]) -> Any:
    """The ``quant_method`` of a quantization_config; older files of bitsandbytes name none."""
    return quantisation.get("quant_method", "bitsandbytes" if by_bits(quantisation) else None)


def by_bits(quantisation: dict[str, Any]) -> bool:
    """Whether it is of bitsandbytes."""
    return any(quantisation.get(f"load_in_{bit}") for bit in ("4bit", "8bit"))


def refuse_lost(settings: dict[str, Any], stored: Stored, spec: str) -> None:
    """Raise `BadInput` where the files lack scales, or other parts, of a quantised weight.

    ``settings`` is the quantization_config.  Transformers takes the packed numbers for the
    weights, or does not say what is missing.  Of methods that are not named here it reports
    missing parts itself.
    """
    named = method(settings)
    absent = [
        alternatives[0]
        for tensor in stored.tensors.values()
        for alternatives in _parts(tensor, named, settings, stored.tensors)
        if not any(name in stored.tensors for name in alternatives)
    ]
    if absent:
        raise BadInput(
            f"{spec}: its weights are quantised ({named}), and the files lack "
            f"{listed(sorted(absent))}, without which they cannot be read"
        )


def _parts(
    tensor: StoredTensor,
    method: str,
    settings: dict[str, Any],
    tensors: Mapping[str, StoredTensor],
) -> list[tuple[str, ...]]:
    """What is needed to read ``tensor``: for each part, the names that it may have."""
    name = tensor.name
    if method in ("fp8", "mxfp4"):
        return [names] if (names := _scales(tensor)) else []
    if method != "bitsandbytes":
        return []
    if tensor.dtype_name == "int8":
        return [(f"{name.rpartition('.')[0]}.SCB",)]
    if tensor.dtype_name != "uint8" or len(tensor.shape) != 2:
        return []  # its parts have one dimension
    states = tuple(f"{name}.quant_state.bitsandbytes__{kind}" for kind in ("nf4", "fp4"))
    if settings.get("bnb_4bit_quant_type", "fp4") == "fp4":
        states = states[::-1]
    parts: list[tuple[str, ...]] = [(f"{name}.absmax",), (f"{name}.quant_map",), states]
    scales = tensors.get(f"{name}.absmax")
    if scales is not None and scales.dtype_name == "uint8":  # quantised themselves
        parts += [(f"{name}.nested_absmax",), (f"{name}.nested_quant_map",)]
    return parts


def _scales(tensor: StoredTensor) -> tuple[str, ...]:
    """The names that the scales of a packed tensor may have; none if it is not packed."""
    name = tensor.name
    if name.endswith("_blocks") and tensor.dtype_name == "uint8":
        return (f"{name.removesuffix('_blocks')}_scales",)
    if tensor.dtype_name not in EIGHT_BITS or name.endswith(("scale", "scale_inv")):
        return ()
    module = name.rpartition(".")[0]
    return (f"{name}_scale_inv", f"{module}.scale", f"{module}.qscale_weight")


def dequantised(held: Iterable[tuple[StoredTensor, str]]) -> list[tuple[StoredTensor, str]]:
    """The tensors of `tensors.in_folder`, packed ones multiplied by their scales, in float32.

    Their scales are left out.  As transformers does it for fp8 and mxfp4 where there is no GPU.
    """
    pairs = list(held)
    tensors = {each.name: each for each, _ in pairs}
    result, used = [], set()
    for tensor, assigned in pairs:
        scales = next((tensors[name] for name in _scales(tensor) if name in tensors), None)
        if scales is not None:
            used.add(scales.name)
            tensor = _dense(tensor, scales)
        result.append((tensor, assigned))
    return [(tensor, assigned) for tensor, assigned in result if tensor.name not in used]


def _dense(tensor: StoredTensor, scales: StoredTensor) -> StoredTensor:
    """``tensor`` times ``scales``, each of which is of a block."""
    name, shape = tensor.name.removesuffix("_blocks"), tensor.shape
    if tensor.dtype_name == "int8":
        shape = (*shape[:-1], 2 * shape[-1])
    if name != tensor.name:  # [experts, out, groups, bytes], which a model has as [in, out]
        shape = (*shape[:-3], math.prod(shape[-2:]) * 2, shape[-3])
    read = partial(_product, tensor, scales)
    return StoredTensor(name, shape, "float32", tensor.path, read)


def _product(tensor: StoredTensor, scales: StoredTensor) -> Tensor:
    import torch

    packed, factors = tensor.read(), scales.read()
    if factors.dtype == torch.uint8:
        factors = (factors.float() - E8M0_BIAS).exp2()
    numbers = packed.float() if packed.dtype.is_floating_point else _nibbles(packed)
    if tensor.name.endswith("_blocks"):
        return (numbers * factors.float()[..., None]).flatten(-2).mT
    factors = factors.float()
    for dimension in (-2, -1) if factors.ndim > 1 else ():
        size = numbers.shape[dimension] // factors.shape[dimension]
        factors = factors.repeat_interleave(size, dimension)
    return numbers * factors


def _nibbles(packed: Tensor) -> Tensor:
    """Bytes [..., n] as numbers [..., 2 n], the lower four bits first."""
    import torch

    table = torch.tensor([*E2M1, *(-number for number in E2M1)])
    halves = packed.view(torch.uint8).int()
    return table[torch.stack([halves & 15, halves >> 4], dim=-1)].flatten(-2)
