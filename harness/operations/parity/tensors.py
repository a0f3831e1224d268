"""Whether two models have the same weights, and which of equal names differ."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.harness.models.machine.weights import is_plain, is_quantised
from assay.harness.models.subject import Subject
from assay.harness.results.errors import Missing


def same_numbers(one: Subject, other: Subject) -> bool:
    """Whether the weights of both are the same numbers, under any names and in any shapes.

    By a sum over hashes of their bits, so a fused or a transposed matrix is the same.
    Quantised weights are not looked into, and not the same.
    """
    if is_quantised(one.model) or is_quantised(other.model):
        return False
    return fingerprint(one) == fingerprint(other)


def fingerprint(subject: Subject) -> tuple[int, int]:
    """The number of weights, and a sum over hashes of their bits.

    A matrix that is stored twice, as an embedding and a head, counts once; tensors of one number
    throughout, such as new norms, count each, as they may be one tensor in another model.
    """
    hashes = [_hashed(each) for each in subject.model.parameters() if each.is_floating_point()]
    once = {(count, total) for count, total, constant in hashes if not constant}
    every = [*once, *((count, total) for count, total, constant in hashes if constant)]
    return sum(count for count, _ in every), sum(total for _, total in every) % 2**64


def _hashed(weight: Tensor) -> tuple[int, int, bool]:
    """The number of elements, the sum over their hashes, and whether all are one number."""
    total, flat = 0, weight.detach().reshape(-1)
    if flat.numel():
        for part in flat.split(1 << 22):
            bits = part.double().view(torch.int64)
            bits = (bits ^ (bits >> 29)) * -4658895280553007687  # odd, from splitmix64
            bits = (bits ^ (bits >> 32)) * -7723592293110705685
            total = (total + int((bits ^ (bits >> 29)).sum())) % 2**64
    constant = not flat.numel() or bool((flat == flat[0]).all())
    return flat.numel(), total, constant


def unlike_embeddings(one: Subject, other: Subject) -> Tensor:
    """The ids of text whose embeddings differ, where both have a table of one size: [ids]."""
    try:
        tables = [each.embedding_table.detach() for each in (one, other)]
    except Missing:
        return torch.tensor([])
    same_size = tables[0].shape == tables[1].shape
    if not same_size or not all(is_plain(each) and not each.is_meta for each in tables):
        return torch.tensor([])
    differ = (tables[0].cpu() != tables[1].to(tables[0].dtype).cpu()).any(-1)
    ids = differ.nonzero().flatten()
    return ids[other.content(ids.to(other.device)).cpu() == ids]


def unlike_weights(one: Subject, other: Subject) -> list[str]:
    """Parameters and buffers of the same name in both that are not equal, each in a line that has
    the name in ``other``.
    """
    mine = {_shared(one, name): own for name, own in _tensors(one)}
    lines = []
    for name, theirs in _tensors(other):
        own = mine.get(_shared(other, name))
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
    for named in (model.named_parameters(), model.named_buffers()):
        for name, tensor in named:
            if tensor.is_floating_point() and is_plain(tensor):
                yield name.removeprefix("inner."), tensor.detach()


def _shared(subject: Subject, name: str) -> str:
    """A tensor's name as a model has it that is the body alone."""
    base = subject.model.base_model_prefix
    return name.removeprefix(f"{base}.") if base else name
