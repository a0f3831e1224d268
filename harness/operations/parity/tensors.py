"""Whether two models have the same weights, and which of equal names differ."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.harness.models.quantised_weights import is_plain, is_quantised
from assay.harness.models.subject import Subject


def same_numbers(one: Subject, other: Subject) -> bool:
    """Whether the weights of both are the same numbers, under any names and in any shapes.

    By a sum over hashes of their bits, so a fused or a transposed matrix is the same.
    Quantised weights are not looked into, and not the same.
    """
    if is_quantised(one.model) or is_quantised(other.model):
        return False
    return _fingerprint(one) == _fingerprint(other)


def _fingerprint(subject: Subject) -> tuple[int, int]:
    count, total = 0, 0
    for weight in subject.model.parameters():
        if not weight.is_floating_point():
            continue
        for part in weight.detach().reshape(-1).split(1 << 22):
            bits = part.double().view(torch.int64)
            bits = (bits ^ (bits >> 29)) * -4658895280553007687  # odd, from splitmix64
            bits = (bits ^ (bits >> 32)) * -7723592293110705685
            total = (total + int((bits ^ (bits >> 29)).sum())) % 2**64
        count += weight.numel()
    return count, total


def unlike_weights(one: Subject, other: Subject) -> list[str]:
    """Parameters and buffers of the same name in both that are not equal, each in a line."""
    mine = dict(_tensors(one))
    lines = []
    for name, theirs in _tensors(other):
        own = mine.get(name)
        if own is None:
            continue
        if own.shape != theirs.shape:
            lines.append(f"{name}: {[*own.shape]} and {[*theirs.shape]}")
            continue
        apart = (own.double().cpu() - theirs.double().cpu()).abs()
        if apart.numel() and float(apart.max()) != 0.0:
            many = int((apart != 0).sum())
            lines.append(f"{name}: {many} of {apart.numel()} numbers, by {float(apart.max()):.2g}")
    return lines


def _tensors(subject: Subject) -> Iterator[tuple[str, Tensor]]:
    model = subject.model
    base = f"{model.base_model_prefix}." if model.base_model_prefix else ""
    for named in (model.named_parameters(), model.named_buffers()):
        for name, tensor in named:
            if tensor.is_floating_point() and is_plain(tensor):
                yield name.removeprefix("inner.").removeprefix(base), tensor.detach()
