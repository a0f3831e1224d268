"""Prompts for the encoder of an encoder-decoder: a fixed one, or one for each row."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from assay.harness.models.core import Core
from assay.harness.models.memo import memo

ENCODER_PROMPT = 19
"""Tokens that an encoder–decoder's encoder is given while its decoder is examined: more than the
window of a tiny one.
"""


@memo
def _encoded(subject: Core) -> dict[tuple[int, str], Any]:
    """What the encoder gave, by the size of the batch and the attention implementation."""
    return {}


def fixed(subject: Core, batch: int) -> Any:
    """The encoder's states for a fixed prompt, repeated for every row of the batch."""
    known, key = _encoded(subject), (batch, subject.attention)
    if key not in known:
        known[key] = encoded(subject, batch)
    return copy.copy(known[key])


def encoded(subject: Core, batch: int) -> Any:
    """The same states as `fixed`, computed in this call."""
    ids = torch.arange(ENCODER_PROMPT, device=subject.device) * 5 % subject.vocabulary
    return subject.encode(ids.expand(batch, -1))


def arguments(subject: Core, ids: Tensor, mask: Tensor | None = None) -> dict[str, Any]:
    """Arguments for a forward pass whose encoder reads ``ids`` [batch, n] under ``mask``.

    ``mask`` [batch, n] has 1 for content; without one nothing is said of it.  The encoder's
    states are computed here, once for all passes that are given them.
    """
    masked = {} if mask is None else {"attention_mask": mask}
    return {"encoder_outputs": subject.encode(ids, mask), **masked}


def beside(subject: Core, ids: Tensor) -> dict[str, Any]:
    """`arguments` for a prompt made of the decoder's ``ids`` [batch, n]; empty without encoder."""
    if not subject.is_encoder_decoder:
        return {}
    return arguments(subject, subject.content(ids[:, :ENCODER_PROMPT].flip(1) + 1))
