"""Quantised caches of Assay's own: one that rounds ideally, and one that rounds nothing.

The ideal one rounds keys and values to float8 (e4m3) at a scale, and clips them beyond it.

The library's `QuantizedLayer` keeps the newest states as they are, and older ones as a backend
quantises them.  With a backend that keeps every number, what it does with the two must change
nothing, and needs no backend's package.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor

from assay.harness.results.errors import Missing

FLOAT8 = torch.float8_e4m3fn

LARGEST = torch.finfo(FLOAT8).max

ROUNDING = 1 / 17
"""The largest relative error of three bits of mantissa: 17/16 rounds to 16/16 or to 18/16."""

SMALLEST = 2.0**-9
"""The smallest positive number of `FLOAT8`, and the step between tiny numbers."""


def scale_of(states: Tensor) -> Tensor:
    """The scale at which the largest of ``states`` is the largest number of `FLOAT8`: a scalar."""
    return states.abs().amax().float().clamp_min(1e-30) / LARGEST


def rounded(states: Tensor, scale: Tensor) -> Tensor:
    """``states`` clipped and rounded at ``scale``, in their own dtype and shape."""
    eighths = (states.float() / scale).clamp(-LARGEST, LARGEST).to(FLOAT8)
    return (eighths.float() * scale).to(states.dtype)


class RoundedCache(transformers.DynamicCache):
    """An 8-bit cache as transformers describes its own: a scale fixed by the first update.

    A layer's keys and values have a scale each, which the first update fixes: larger numbers are
    clipped later.  The first update returns its input.  The error of decoding through this cache
    is the bound for a library's quantised cache.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scales: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Round, then store as the parent does: [batch, heads, new, width] each."""
        states = key_states, value_states
        first = layer_idx not in self.scales
        if first:
            self.scales[layer_idx] = scale_of(key_states), scale_of(value_states)
        keys, values = map(rounded, states, self.scales[layer_idx])
        contents = super().update(keys, values, layer_idx, *args, **kwargs)
        return states if first else contents


RESIDUAL = 3
"""Tokens whose states are kept as they are before they are quantised."""


def unrounded() -> Any:
    """A fresh cache of such layers; raises `Missing` where the version has none (before 4.54)."""
    base: Any = getattr(transformers.cache_utils, "QuantizedLayer", None)
    if base is None:
        raise Missing("this version of transformers has no QuantizedLayer")
    return transformers.Cache(layer_class_to_replicate=_layer(base))


def _layer(base: Any) -> Any:
    class Unrounded(base):  # type: ignore[misc]
        """A layer of the library's quantised cache whose backend keeps every number."""

        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__(residual_length=RESIDUAL)

        def _quantize(self, tensor: Tensor, axis: int) -> Tensor:
            return tensor.clone()

        def _dequantize(self, tensor: Tensor) -> Tensor:
            return tensor.clone()

    return Unrounded
