"""Faults of torch's own functions, like a wrong kernel on a machine.

They are outside of any model: claims about toys notice them as well as claims about models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flexible

from assay.harness.faults.bed import Bed
from assay.harness.faults.catalogue import fault


def _later_more(value: Tensor) -> Tensor:
    """Scale values [..., keys, width] up with their position."""
    weights = torch.linspace(0.9, 1.1, value.shape[-2], device=value.device)[:, None]
    return value * weights.to(value)


def _minding(usual: Callable[..., Any]) -> Callable[..., Any]:
    def attend(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        return usual(query, key, _later_more(value), *args, **kwargs)

    return attend


@fault(
    "kernel-minds-order",
    "torch's fused attention weighs later keys more",
    caught_by=["B1", "B3"],
)
def _attend_fused(bed: Bed) -> None:
    usual = torch.nn.functional.scaled_dot_product_attention
    bed.set(torch.nn.functional, "scaled_dot_product_attention", _minding(usual))


@fault(
    "flexible-kernel-minds-order",
    "torch's flexible attention weighs later keys more",
    caught_by=["B1", "B3"],
)
def _attend_flexibly(bed: Bed) -> None:
    bed.set(flexible, "flex_attention", _minding(flexible.flex_attention))


@fault(
    "softmax-minds-order",
    "torch's softmax gives the later of its elements more",
    caught_by=["B1", "B3"],
)
def _normalise(bed: Bed) -> None:
    usual = torch.Tensor.softmax

    def minding(scores: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = usual(scores, *args, **kwargs)
        return _later_more(result.mT).mT if scores.ndim > 1 else result

    bed.set(torch.Tensor, "softmax", minding)


@fault(
    "activation-clips-gradients",
    "torch's GELU scales the gradient that passes back through it down to length one",
    caught_by=["F1"],
    needs=["inputs-embeds", "blocks"],
)
def _clip(bed: Bed) -> None:
    bed.set(torch.nn.functional, "gelu", _gelu(to_length_one))


@fault(
    "activation-spoils-gradients",
    "one element of the gradient that passes back through torch's GELU is infinite",
    caught_by=["F2"],
    needs=["inputs-embeds", "blocks"],
)
def _spoil(bed: Bed) -> None:
    bed.set(torch.nn.functional, "gelu", _gelu(one_infinite))


def _gelu(gradient: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    usual = torch.nn.functional.gelu

    def gelu(*args: Any, **kwargs: Any) -> Tensor:
        result = usual(*args, **kwargs)
        if result.requires_grad:
            result.register_hook(gradient)
        return result

    return gelu


def to_length_one(gradient: Tensor) -> Tensor:
    """``gradient``, scaled down to length one if it is longer."""
    return gradient / gradient.norm().clamp_min(1.0)


def one_infinite(gradient: Tensor) -> Tensor:
    """``gradient`` [..., n, width] with one infinite element in each matrix."""
    spoilt = gradient.clone()
    spoilt[..., 0, 0] = torch.inf
    return spoilt
