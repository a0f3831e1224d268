"""Prompts for the encoder of an encoder-decoder: a fixed one, or one for each row."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.roles import Role

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

ENCODER_PROMPT = 19
"""Tokens in the prompt of an encoder-decoder's encoder while its decoder is examined: more than
the window of a tiny one.
"""


@memo
def _encoded(subject: Subject) -> dict[tuple[int, str], Any]:
    """The encoder's outputs, by batch size and attention implementation."""
    return {}


def fixed(subject: Subject, batch: int) -> Any:
    """The encoder's states for a fixed prompt, repeated for every row of the batch."""
    outputs, key = _encoded(subject), (batch, subject.attention)
    if key not in outputs:
        outputs[key] = encoded(subject, batch)
    return copy.copy(outputs[key])


def encoded(subject: Subject, batch: int) -> Any:
    """The same states as `fixed`, computed in this call."""
    ids = torch.arange(ENCODER_PROMPT, device=subject.device) * 5 % subject.vocabulary
    return subject.encode(ids.expand(batch, -1))


def arguments(subject: Subject, ids: Tensor, mask: Tensor | None = None) -> dict[str, Any]:
    """Arguments for a forward pass whose encoder reads ``ids`` [batch, n] under ``mask``.

    ``mask`` [batch, n] has 1 for content; without one the arguments have none.  The encoder runs
    here, once for all passes with these arguments.
    """
    values: dict[str, Any] = {Role.ENCODED: subject.encode(ids, mask)}
    return values if mask is None else {**values, Role.ENCODER_MASK: mask}


def beside(subject: Subject, ids: Tensor) -> dict[str, Any]:
    """`arguments` for a prompt derived from the decoder's ``ids`` [batch, n]; empty without an
    encoder.
    """
    if not subject.is_encoder_decoder:
        return {}
    return arguments(subject, subject.content(ids[:, :ENCODER_PROMPT].flip(1) + 1))
