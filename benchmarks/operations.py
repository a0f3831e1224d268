"""Counts the operations of a descent's step, by formula."""

from __future__ import annotations

from assay.harness.inversion import Target
from assay.harness.models.subject import Subject


def weights(subject: Subject, target: Target) -> int:
    """N: numbers in the matrices that a token is multiplied with on its way to the target."""
    blocks = list(subject.blocks)[: target.depth]
    count = sum(each.numel() for block in blocks for each in block.parameters() if each.ndim == 2)
    if target.through in ("head", "logits"):
        count += subject.model.get_output_embeddings().weight.numel()
    return count


def of_token_step(subject: Subject, target: Target, n: int) -> int:
    """FLOPs of one step of descent for one of ``n`` tokens: 4 N + 12 L d T.

    2 N forward and 2 N backward to the input alone; attention has two products of 2 d T each in
    every one of L blocks, and takes twice that again to go back.
    """
    width = subject.config.hidden_size
    return 4 * weights(subject, target) + 12 * target.depth * width * n
