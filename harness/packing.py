"""Positions that begin again within a row: some models read them as several packed sequences."""

from __future__ import annotations

import torch

from harness import capabilities, masks, positions
from harness.errors import REFUSALS
from harness.memo import memo
from harness.subject import Subject

HALF = 3
"""Tokens in each of the two sequences that are packed."""


@memo
def read_from_positions(subject: Subject) -> bool:
    """Whether positions that restart change the mask where none is given.

    True of causal models of transformers 4.53 or later that make their mask by its functions.
    """
    n = 2 * HALF
    found = capabilities.of(subject)
    if "causal" not in found or "mask-4d" not in found or n > (subject.context or n):
        return False
    ids = subject.content(torch.arange(n, device=subject.device)[None] * 7)
    places = positions.usual(subject, n)[torch.arange(n, device=subject.device) % HALF]
    mask = masks.causal(n, subject.dtype, subject.device)
    try:
        alone = subject.rows(ids, positions=places)
        whole = subject.rows(ids, positions=places, mask=mask)
    except REFUSALS:
        return False
    return not capabilities.agree(subject, alone, whole)
