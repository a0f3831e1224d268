"""The precision in which a model computes, which may differ from the dtype of its parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from assay.harness.models.machine.dispatching import Dispatching
from assay.harness.models.machine.weights import rounding
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo


class _Watch(Dispatching):
    """Notes whether any activation has a floating dtype narrower than float64."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.narrow = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.ndim > 1:
                self.narrow |= leaf.dtype != torch.float64
        return result


@memo
def all_float64(subject: Subject) -> bool:
    """Whether the float64 reference copy computes in float64 throughout.

    Many models compute softmax, norms or rotary angles in float32 in every dtype; their
    reference copy is then exact only to float32's rounding.
    """
    reference = reference_of(subject)
    with _Watch() as watch:
        reference(reference.content(torch.arange(3, device=reference.device)[None] * 5))
    return not watch.narrow


@memo
def working(subject: Subject) -> torch.dtype:
    """The dtype whose tolerance applies: the parameters', float32 for partial float64, or bfloat16
    where activations have 8 bits.
    """
    if subject.dtype == torch.float64 and not all_float64(subject):
        return torch.float32
    return rounding(subject.model, subject.dtype)
