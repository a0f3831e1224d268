"""The longest and shortest prompt that a model takes."""

from __future__ import annotations

import torch

from assay.harness.models import compat, configuration, meant, positions
from assay.harness.models.core import Core
from assay.harness.models.shortage import pass_on

SHORT = 8
"""Tokens that every model takes, or its context's."""

LONG = 256
"""The length of the longest prompts: long enough for any effect of length."""


def context(subject: Core) -> int | None:
    """The longest prompt that the positions allow, or None where there is no limit."""
    table = positions.position_table(subject)
    if table is not None:
        rows = len(table.weight) - positions.position_offset(subject)
        return rows - positions.positions_beyond(subject)
    return configuration.context(subject.config)


def shortest(subject: Core) -> int:
    """The shortest prompt that the model takes, up to `SHORT`; 1 if it takes none of them."""
    if meant.direction(subject).ways == meant.CAUSAL or compat.can_generate(subject.model):
        return 1
    for n in range(1, SHORT + 1):
        try:
            subject.rows(subject.content(torch.arange(n, device=subject.device)[None]))
        except (RuntimeError, ValueError, IndexError) as error:
            pass_on(error)
            continue
        return n
    return 1
