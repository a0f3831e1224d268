"""What an encoder-decoder's encoder is given, where it is to differ from row to row."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from harness.subject import ENCODER_PROMPT, Subject


def given(subject: Subject, ids: Tensor, mask: Tensor | None = None) -> dict[str, Any]:
    """Arguments for a forward pass whose encoder reads ``ids`` [batch, n] under ``mask``.

    ``mask`` [batch, n] has 1 for content; without one nothing is said of it.  The encoder's
    states are computed here, once for all passes that are given them.
    """
    masked = {} if mask is None else {"attention_mask": mask}
    return {"encoder_outputs": subject.encode(ids, mask), **masked}


def beside(subject: Subject, ids: Tensor) -> dict[str, Any]:
    """`given` with a prompt made of the decoder's ``ids`` [batch, n]; empty without an encoder."""
    if not subject.is_encoder_decoder:
        return {}
    return given(subject, subject.content(ids[:, :ENCODER_PROMPT].flip(1) + 1))
