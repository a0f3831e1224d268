"""The longest and shortest prompt that a model takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import compat, configuration, positions
from assay.harness.models.subject.memo import memo

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

SHORT = 8
"""Tokens that every model takes, or its context's."""

LONG = 256
"""The length of the longest prompts: long enough for any effect of length."""

FAR = 304
"""Tokens of one prompt of some laws, where the model is small: faults show past lengths that no
field of a configuration names.
"""

FEWEST = 16
"""Prompts of a large model have up to this many tokens, and more where its ``reach`` allows."""

ONE_LONG_IN = 8
"""One in so many prompts of a large model is as long as those of a small one."""


LARGE = 2**26
"""Parameters (67 million) above which a model is worth slicing.

A pass of 128 tokens through fewer takes less than 0.2 s on one core: a slice would save little.
"""


def is_sliced(subject: Subject) -> bool:
    """Whether laws about the model are decided on a slice of it (`models.reference.slices`)."""
    return subject.settings.layers != ALL and _parameters(subject) > LARGE


PASS = 128
"""Tokens of a pass as budgets count it."""


def most_tokens(subject: Subject, passes: float) -> float:
    """The tokens of ``passes``: a law's budget.  A small model has as many more as it is smaller
    than `LARGE`, so that only laws about large ones are cut short.
    """
    return passes * PASS * max(1.0, LARGE / _parameters(subject))


ALL = "all"
"""The value of ``--layers`` by which every law is decided on the whole model."""


@memo
def _parameters(subject: Subject) -> int:
    """The model's parameters, counted once: every prompt asks, and a count visits each module."""
    return max(1, subject.model.num_parameters())


def usual_longest(subject: Subject) -> int:
    """The tokens of a usual prompt, so that one pass costs at most the subject's ``reach``."""
    within = subject.settings.reach / _parameters(subject)
    return LONG if within > LONG else max(FEWEST, int(within))


def far_length(subject: Subject) -> int:
    """The tokens of the prompt that goes beyond all others; 0 where one pass costs too much."""
    return FAR if usual_longest(subject) == LONG else 0


MOST_LOGITS = 2**29
"""Logits of the longest prompt, at most: two gigabytes in float32."""


def farthest(subject: Subject) -> int:
    """The tokens of the prompt that is to pass a model's windows and rotations.

    One example of a law: it may cost as much as the profile's ``far`` allows.
    """
    within = subject.settings.far / _parameters(subject)
    vocabulary = getattr(subject.config, "vocab_size", None) or 1
    return max(LONG, int(min(within, MOST_LOGITS / vocabulary)))


def is_large(subject: Subject) -> bool:
    """Whether a usual prompt is so short that a pass reads more weights than tokens: above 67
    million parameters within the reach of `quick`.
    """
    return usual_longest(subject) <= 2 * FEWEST


def context(subject: Subject) -> int | None:
    """The longest prompt that the positions allow, or None where there is no limit."""
    table = positions.position_table(subject)
    if table is not None:
        rows = len(table.weight) - positions.position_offset(subject)
        return rows - positions.positions_beyond(subject)
    return configuration.context(subject.config)


def shortest(subject: Subject) -> int:
    """The shortest prompt that the model takes, up to `SHORT`; 1 if it takes none of them."""
    if compat.can_generate(subject.model):
        return 1
    from assay.harness.models.subject import meant

    if meant.direction(subject).ways == meant.CAUSAL:
        return 1
    for n in range(1, SHORT + 1):
        try:
            subject.rows(subject.content(torch.arange(n, device=subject.device)[None]))
        except (RuntimeError, ValueError, IndexError) as error:
            pass_on(error)
            continue
        return n
    return 1
