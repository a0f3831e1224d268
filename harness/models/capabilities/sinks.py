"""Whether attention has a sink: something that it attends to and that is not a token.

Attention weights do not always show it: some models scale the output of attention afterwards.  So
the attention function is replaced by one that inspects its arguments.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models.capabilities import releases
from assay.harness.models.machine.shortage import refusals_ignored
from assay.harness.models.subject import Subject

LISTENER = "assay_listener"
"""The function's name in the library's registry."""

ARGUMENT = "s_aux"
"""The library's argument of an attention function for the scores of sinks."""

_heard = threading.local()


def _listen(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
) -> tuple[Tensor, None]:
    """Note whether there are sinks; return zeros [batch, n, heads, width] without meaning."""
    _heard.sinks = _heard.sinks or options.get(ARGUMENT) is not None
    batch, heads, n, _ = query.shape
    return query.new_zeros(batch, n, heads, value.shape[-1]), None


def present(subject: Subject) -> bool:
    """Whether some layer's attention gets sinks; False where this cannot be observed."""
    _heard.sinks = False
    ids = subject.content(torch.arange(2, device=subject.device)[None])
    with refusals_ignored():  # layers that ran before an error count
        releases.attention_functions().register(LISTENER, _listen)
        with subject.attending_by(LISTENER):
            subject(ids, states=False)
    return bool(_heard.sinks)
