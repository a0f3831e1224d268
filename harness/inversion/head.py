"""Undoes the output embedding: recovers states from logits by least squares.

Only a head of full column rank can be undone.  A head is a bottleneck for descent because of its
conditioning, not because it loses information (INVERSION, 'Linear algebra').
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.harness.inversion.decoding import PseudoInverse
from assay.harness.inversion.target import Target, head_of
from assay.harness.models.reference.tolerances import TOLERANCES, distance
from assay.harness.models.subject import Subject, blocks
from assay.harness.models.subject.memo import memo
from assay.harness.results.errors import BadInput

BEFORE = {"head": "block", "logits": "norm"}
"""The target after its head is undone."""


@memo
def inverse(subject: Subject) -> PseudoInverse:
    """The pseudo-inverse of the output embedding [V, hidden]."""
    return PseudoInverse.of(head_of(subject).weight)


@memo
def alone(subject: Subject) -> bool:
    """Whether the logits are the head's output itself, without a cap or scale."""
    head = head_of(subject)
    ids = subject.content(torch.arange(3, device=subject.device)[None] * 5)
    logits = subject.rows(ids, states=False)["logits"]
    product = F.linear(blocks.head_input(subject, ids), head.weight, getattr(head, "bias", None))
    if product.shape != logits.shape:
        return False
    return bool((distance(product, logits) <= TOLERANCES[subject.dtype].floor).all())


def without_head(subject: Subject, target: Target, goal: Tensor) -> tuple[Target, Tensor]:
    """The target before the head, and the states [rows, n, hidden] behind ``goal``.

    Raises `BadInput` where the head does not have full column rank, so that the logits do not
    determine the state, and where the logits are not the head's output itself.
    """
    if target.through not in BEFORE:
        return target, goal
    head = head_of(subject)
    head_inverse = inverse(subject)
    if head_inverse.rank < head.weight.shape[1]:
        raise BadInput(
            f"head: its rank is {head_inverse.rank} of {head.weight.shape[1]} (condition "
            f"{head_inverse.condition:.3g}), so the logits do not determine the state"
        )
    if target.through == "logits" and not alone(subject):
        raise BadInput(f"head: {subject.name} caps or scales the logits that it makes")
    logits = goal if getattr(head, "bias", None) is None else goal - head.bias
    states = head_inverse.apply(logits).to(goal.dtype)
    return replace(target, through=BEFORE[target.through]), states
