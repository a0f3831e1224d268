"""A quantised cache of the library's that rounds nothing: its bookkeeping alone.

The library's `QuantizedLayer` keeps the newest states as they are, and older ones as a backend
quantises them.  With a backend that keeps every number, what it does with the two must change
nothing, and needs no backend's package.
"""

from __future__ import annotations

from typing import Any

import transformers
from torch import Tensor

from assay.harness.results.errors import Missing

RESIDUAL = 3
"""Tokens whose states are kept as they are before they are quantised."""


def cache() -> Any:
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
