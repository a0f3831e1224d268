"""Checks that a forward pass leaves its inputs unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models.reference.tolerances import bit_equal
from assay.harness.models.subject import Subject, passes, roles


def share_changed(subject: Subject, **inputs: Tensor | None) -> float:
    """Run the subject on ``inputs`` and return the largest share of an input's elements that it
    changed in place.
    """
    tensors = {name: tensor for name, tensor in inputs.items() if tensor is not None}
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    subject.rows(**inputs)
    return max(bit_equal(before[name], tensor) for name, tensor in tensors.items())


@contextmanager
def meddled_with(subject: Subject) -> Iterator[None]:
    """Make the model reverse its inputs in place, within a block."""

    def turn(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors = [kwargs.get(passes.ids_argument(subject) or ""), *roles.fed(kwargs)]
        for tensor in {id(each): each for each in (*args[:1], *tensors)}.values():
            if torch.is_tensor(tensor):
                tensor.copy_(tensor.flip(1))

    hook = subject.model.register_forward_pre_hook(turn, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
