"""Faults of 8-bit caches: wrong scales, and a past that is rounded again or moved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor

from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import Pass, own_cache
from assay.harness.faults.catalogue import fault, part
from assay.harness.faults.pasts import KV
from assay.harness.models.capabilities import caches
from assay.harness.models.capabilities.quantised_caches import rounded, scale_of
from assay.harness.models.subject import Subject
from assay.harness.results.errors import REFUSALS, Missing, first_line

NEEDS = [*KV, "quantised cache"]


@part("quantised cache")
def _quantised_cache(subject: Subject) -> None:
    cache = caches.make(subject, "quantised", 1, 2)
    ids = subject.content(torch.arange(2, device=subject.device)[None])
    try:
        caches.decode(subject, ids, [1, 1], cache=cache)
    except REFUSALS as error:
        raise Missing(f"the model does not decode with it: {first_line(error)}") from error


class _Layer:
    """Replaces a layer's ``update``: the same, and then changes the states that it returns.

    ``first`` are the first update's keys and values, ``last`` those that the latest one returned.
    """

    def __init__(self, layer: Any, change: Callable[[_Layer, Tensor, int], Tensor]) -> None:
        self.usual, self.change = layer.update, change
        self.first: tuple[Tensor, ...] = ()
        self.last: tuple[Tensor, ...] = ()
        self.which = 0

    def __call__(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        states = self.usual(keys, values, *args, **kwargs)
        past = states[0].shape[-2] - keys.shape[-2]
        if not past:
            self.first = self.last = (keys, values)
            return states
        changed = []
        for self.which, state in enumerate(states):
            changed.append(self.change(self, state, past))
        self.last = tuple(changed)
        return self.last


def inside(bed: Bed, change: Callable[[_Layer, Tensor, int], Tensor]) -> None:
    """In every layer of a quantised cache: ``change(layer, states, past)`` after an update.

    ``states`` are all keys, or all values, [rows, heads, past and new, width].
    """
    bed.arguments(partial(_change_layers, by=change))


def _change_layers(
    forward: Pass, kwargs: dict[str, Any], by: Callable[[_Layer, Tensor, int], Tensor]
) -> None:
    cache: Any = own_cache(forward.cache)
    if isinstance(cache, transformers.QuantizedCache):
        layer: Any
        for layer in cache.layers:
            if "update" not in vars(layer):
                layer.update = _Layer(layer, by)


@fault(
    "quantised-scales-exchanged",
    "an 8-bit cache reads its keys at the scale of its values, and those at the keys'",
    caught_by=["C2"],
    needs=NEEDS,
    at=inside,
)
def _exchanged(layer: _Layer, states: Tensor, past: int) -> Tensor:
    own, other = layer.first[layer.which], layer.first[1 - layer.which]
    return states * (scale_of(other) / scale_of(own)).to(states)


@fault(
    "quantised-past-rounded-again",
    "with every update an 8-bit cache rounds its past again, at the scale of what is new",
    caught_by=["C2"],
    needs=NEEDS,
    at=inside,
)
def _rounded_again(layer: _Layer, states: Tensor, past: int) -> Tensor:
    new = states[..., past:, :]
    return torch.cat([rounded(layer.last[layer.which], scale_of(new)), new], dim=-2)


@fault(
    "quantised-past-shifted",
    "an 8-bit cache gives back its past one position late",
    caught_by=["C2"],
    needs=NEEDS,
    at=inside,
)
def _shifted(layer: _Layer, states: Tensor, past: int) -> Tensor:
    return torch.cat([states[..., :past, :].roll(1, -2), states[..., past:, :]], dim=-2)
