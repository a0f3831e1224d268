"""Records the updates and contents of a quantised cache, rounded and clipped at its first scale.

transformers promises of its 8-bit cache that "the per-tensor scale is frozen after the first
`update`" (docstring of ``Fp8QuantizedLayer``).  So a stored number is the original, clipped at the
largest of the first update and rounded to float8 (e4m3): off by 1/17 at most, or by half of the
smallest step where it is tiny.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from assay.harness.models.capabilities import caches
from assay.harness.models.capabilities.quantised_caches import (
    LARGEST,
    ROUNDING,
    SMALLEST,
    rounded,
    scale_of,
)
from assay.harness.models.subject import Subject

ARITHMETIC = 1e-5
"""A relative error above float32's for dividing by a scale and multiplying again."""


@dataclass(frozen=True)
class History:
    """The keys, or the values, of one layer: each update's input and the cache's output.

    ``updates`` [batch, heads, new, width] and ``contents`` [batch, heads, past and new, width],
    one of each per update.
    """

    updates: list[Tensor] = field(default_factory=list)
    contents: list[Tensor] = field(default_factory=list)

    @property
    def excess(self) -> float:
        """The largest error in units of the allowed one: at most 1 where the promise is kept.

        It covers the error of every stored number, and changes to numbers stored before.
        """
        scale, past = scale_of(self.updates[0]), torch.empty(0)
        limit = scale * LARGEST
        noise = torch.finfo(self.updates[0].dtype).eps
        relative = ROUNDING + (1 + ROUNDING) * noise / 2 + ARITHMETIC
        largest = 0.0
        for last, contents in enumerate(self.contents):
            inputs = torch.cat(self.updates[: last + 1], dim=-2).float().clamp(-limit, limit)
            allowed = relative * inputs.abs() + scale * SMALLEST / 2
            largest = max(largest, _largest((contents.float() - inputs).abs() / allowed))
            # The first update may return its input unrounded.
            if last > 1:
                moved = (contents[..., : past.shape[-2], :].float() - past).abs()
                allowed = (noise + ARITHMETIC) * past.abs() + scale * ARITHMETIC
                largest = max(largest, _largest(moved / allowed))
            past = contents.float()
        return largest

    def changed(self, change: Callable[[History, int, Tensor], Tensor]) -> History:
        """The same with ``change`` (history, number of the update, held) from the second on."""
        later = (change(self, i, states) for i, states in enumerate(self.contents[1:], 1))
        return replace(self, contents=[self.contents[0], *later])

    def with_leak(self, size: float) -> float:
        """The `excess` where all contents after the first update are larger by ``size``."""
        return self.changed(lambda history, number, contents: grown(contents, size)).excess


def _largest(ratios: Tensor) -> float:
    """The largest of ``ratios``; infinite where one is not a number."""
    return float(torch.where(torch.isnan(ratios), math.inf, ratios).amax())


def rescaled(history: History, number: int, contents: Tensor) -> Tensor:
    """The contents of a cache that changes its scale at every update but keeps its past."""
    new = scale_of(history.updates[number])
    fresh = rounded(history.updates[number], new)
    past = contents[..., : -fresh.shape[-2], :] * (new / scale_of(history.updates[0])).to(contents)
    return torch.cat([past, fresh], dim=-2)


def enlarged(history: History, number: int, contents: Tensor) -> Tensor:
    """The contents of a cache whose scale is off by the smallest error that must be detected."""
    return grown(contents, must_see(contents.dtype))


def must_see(dtype: torch.dtype) -> float:
    """The relative error of a scale that the law must detect: 0.01, or two steps of ``dtype``.

    Each number is off by up to 1/17, and a few in thousands by nearly that.
    """
    return max(0.01, 2 * torch.finfo(dtype).eps)


def grown(contents: Tensor, by: float) -> Tensor:
    """``contents`` enlarged by the share ``by``, in its own dtype."""
    return contents * (1 + by)


def stale(history: History, number: int, contents: Tensor) -> Tensor:
    """The contents of a cache whose newest entry is the previous token's."""
    return torch.cat([contents[..., :-1, :], contents[..., -2:-1, :]], dim=-2)


def histories(subject: Subject, ids: Tensor, chunks: Sequence[int]) -> list[History]:
    """Keys and values of every layer while ``ids`` [batch, n] are decoded in ``chunks``.

    Raises `Missing` where the model or the library has no quantised cache.
    """
    cache = caches.make(subject, "quantised", *ids.shape)
    histories_by_tensor: dict[tuple[int, int], History] = {}
    update = cache.update

    def watched(keys: Tensor, values: Tensor, layer: int, *args: Any, **kwargs: Any) -> Any:
        contents = update(keys, values, layer, *args, **kwargs)
        for which, (new, all_) in enumerate(zip((keys, values), contents, strict=True)):
            history = histories_by_tensor.setdefault((layer, which), History())
            history.updates.append(new.clone())
            history.contents.append(all_.clone())
        return contents

    cache.update = watched
    caches.decode(subject, ids, chunks, cache=cache)
    return list(histories_by_tensor.values())
