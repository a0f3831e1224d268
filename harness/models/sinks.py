"""Whether attention has a sink: something that it attends to and that is not a token.

Not every model's weights of attention tell: some scale what comes of attention afterwards.  So
the attention function is replaced by one that looks what it is given.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models import compat
from assay.harness.models.shortage import refusals_ignored
from assay.harness.models.subject import Subject

LISTENER = "assay_listener"
"""The name under which the library knows the function."""

ARGUMENT = "s_aux"
"""What the library calls the scores of sinks where it hands them to an attention function."""

_heard = threading.local()


def _listen(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **named: Any
) -> tuple[Tensor, None]:
    """Note whether there are sinks; give zeros [batch, n, heads, width], which mean nothing."""
    _heard.sinks = _heard.sinks or named.get(ARGUMENT) is not None
    batch, heads, n, _ = query.shape
    return query.new_zeros(batch, n, heads, value.shape[-1]), None


def present(subject: Subject) -> bool:
    """Whether some layer's attention is given sinks; False where it cannot be listened to."""
    _heard.sinks = False
    ids = subject.content(torch.arange(2, device=subject.device)[None])
    with refusals_ignored():  # what was heard before it broke counts
        compat.attention_functions().register(LISTENER, _listen)
        with subject.attending_by(LISTENER):
            subject(ids, states=False)
    return bool(_heard.sinks)
