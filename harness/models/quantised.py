"""Records what a quantised cache is given and holds, rounded and clipped at its first scale.

transformers promises of its 8-bit cache that "the per-tensor scale is frozen after the first
`update`" (docstring of ``Fp8QuantizedLayer``).  So what it holds of a number is that number, cut
off at the largest of the first update and rounded to float8 (e4m3): off by 1/17 at most, or by
half of the smallest step where it is tiny.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from assay.harness.models import caches
from assay.harness.models.float8 import LARGEST, ROUNDING, SMALLEST, rounded, scale_of
from assay.harness.models.subject import Subject

ARITHMETIC = 1e-5
"""Of a number: more than float32 loses when it is divided by a scale and multiplied again."""


@dataclass(frozen=True)
class History:
    """The keys, or the values, of one layer: what each update gave, and what it gave back.

    ``given`` [batch, heads, new, width] and ``held`` [batch, heads, past and new, width], update
    by update.
    """

    given: list[Tensor] = field(default_factory=list)
    held: list[Tensor] = field(default_factory=list)

    @property
    def excess(self) -> float:
        """The largest error in units of what is allowed: at most 1 where the promise is kept.

        Judged are every number that is held, and that what was held before stays as it was.
        """
        scale, past = scale_of(self.given[0]), torch.empty(0)
        limit = scale * LARGEST
        noise = torch.finfo(self.given[0].dtype).eps
        relative = ROUNDING + (1 + ROUNDING) * noise / 2 + ARITHMETIC
        found = 0.0
        for last, held in enumerate(self.held):
            given = torch.cat(self.given[: last + 1], dim=-2).float().clamp(-limit, limit)
            allowed = relative * given.abs() + scale * SMALLEST / 2
            found = max(found, _largest((held.float() - given).abs() / allowed))
            # The first update may give back what it was given, unrounded.
            if last > 1:
                moved = (held[..., : past.shape[-2], :].float() - past).abs()
                allowed = (noise + ARITHMETIC) * past.abs() + scale * ARITHMETIC
                found = max(found, _largest(moved / allowed))
            past = held.float()
        return found

    def changed(self, change: Callable[[History, int, Tensor], Tensor]) -> History:
        """The same with ``change`` (history, number of the update, held) from the second on."""
        held = [self.held[0], *(change(self, i, h) for i, h in enumerate(self.held[1:], 1))]
        return replace(self, held=held)

    def with_leak(self, size: float) -> float:
        """The `excess` where all that is held after the first update is larger by ``size``."""
        return self.changed(lambda history, number, held: grown(held, size)).excess


def _largest(ratios: Tensor) -> float:
    """The largest of ``ratios``; infinite where one is not a number."""
    return float(torch.where(torch.isnan(ratios), math.inf, ratios).amax())


def rescaled(history: History, number: int, held: Tensor) -> Tensor:
    """What a cache holds that takes a new scale with every update, and not for its past."""
    new = scale_of(history.given[number])
    fresh = rounded(history.given[number], new)
    past = held[..., : -fresh.shape[-2], :] * (new / scale_of(history.given[0])).to(held)
    return torch.cat([past, fresh], dim=-2)


def enlarged(history: History, number: int, held: Tensor) -> Tensor:
    """What a cache holds whose scale is off by as little as must be seen."""
    return grown(held, must_see(held.dtype))


def must_see(dtype: torch.dtype) -> float:
    """The relative error of a scale that the law must see: a hundredth, or two steps of ``dtype``.

    Numbers are off by up to 1/17 each, and some in thousands by nearly that.
    """
    return max(0.01, 2 * torch.finfo(dtype).eps)


def grown(held: Tensor, by: float) -> Tensor:
    """``held`` larger by a share of itself, in its own dtype."""
    return held * (1 + by)


def stale(history: History, number: int, held: Tensor) -> Tensor:
    """What a cache holds whose newest entry is that of the token before."""
    return torch.cat([held[..., :-1, :], held[..., -2:-1, :]], dim=-2)


def histories(subject: Subject, ids: Tensor, chunks: Sequence[int]) -> list[History]:
    """Keys and values of every layer while ``ids`` [batch, n] are decoded in ``chunks``.

    Raises `Missing` where the model or the library has no quantised cache.
    """
    cache = caches.make(subject, "quantised", *ids.shape)
    found: dict[tuple[int, int], History] = {}
    update = cache.update

    def watched(keys: Tensor, values: Tensor, layer: int, *args: Any, **more: Any) -> Any:
        held = update(keys, values, layer, *args, **more)
        for which, (new, all_) in enumerate(zip((keys, values), held, strict=True)):
            history = found.setdefault((layer, which), History())
            history.given.append(new.clone())
            history.held.append(all_.clone())
        return held

    cache.update = watched
    caches.decode(subject, ids, chunks, cache=cache)
    return list(found.values())
