"""Undoes the output embedding: recovers states from logits by least squares.

Only a head of full column rank can be undone.  What makes a head a bottleneck for descent
is its conditioning, not what it loses (INVERSION, 'Linear algebra').
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.harness.models.memo import memo
from assay.harness.models.subject import Subject
from assay.harness.models.tolerances import TOLERANCES, distance
from assay.harness.operations.decoding import PseudoInverse
from assay.harness.operations.inversion.target import Target, head_of
from assay.harness.results.errors import BadInput

BEFORE = {"head": "block", "logits": "norm"}
"""What a target is once its head is undone."""


@memo
def inverse(subject: Subject) -> PseudoInverse:
    """The pseudo-inverse of the output embedding [V, hidden]."""
    return PseudoInverse.of(head_of(subject).weight)


@memo
def alone(subject: Subject) -> bool:
    """Whether the logits are what the head makes of its input, and no cap or scale is put on."""
    head = head_of(subject)
    ids = subject.content(torch.arange(3, device=subject.device)[None] * 5)
    logits = subject.rows(ids, states=False)["logits"]
    made = F.linear(subject.head_input(ids), head.weight, getattr(head, "bias", None))
    if made.shape != logits.shape:
        return False
    return bool((distance(made, logits) <= TOLERANCES[subject.dtype].floor).all())


def without_head(subject: Subject, target: Target, wanted: Tensor) -> tuple[Target, Tensor]:
    """The target before the head, and the states [rows, n, hidden] that ``wanted`` was made of.

    Raises `BadInput` where the head is not of full column rank: the state is not in the logits;
    and where the logits are not the head's alone.
    """
    if target.through not in BEFORE:
        return target, wanted
    head = head_of(subject)
    found = inverse(subject)
    if found.rank < head.weight.shape[1]:
        raise BadInput(
            f"head: its rank is {found.rank} of {head.weight.shape[1]} (condition "
            f"{found.condition:.3g}), so the logits do not determine the state"
        )
    if target.through == "logits" and not alone(subject):
        raise BadInput(f"head: {subject.name} caps or scales the logits that it makes")
    logits = wanted if getattr(head, "bias", None) is None else wanted - head.bias
    states = found.apply(logits).to(wanted.dtype)
    return replace(target, through=BEFORE[target.through]), states
