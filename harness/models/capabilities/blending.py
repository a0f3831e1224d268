"""Finds parts other than attention that mix neighbouring positions, such as convolutions."""

from __future__ import annotations

from typing import Any

from assay.harness.models.capabilities.probing import changes, embedded, prompt
from assay.harness.models.subject import Subject


def blends(subject: Subject) -> str:
    """How a pass mixes neighbouring rows regardless of any mask; empty where it does not."""
    wide = [m for m in subject.model.modules() if _width(getattr(m, "kernel_size", 1)) > 1]
    ran: list[str] = []
    hooks = [m.register_forward_hook(lambda m, *_: ran.append(type(m).__name__)) for m in wide]
    try:
        pooled = subject(prompt(subject)).pooled
    finally:
        for hook in hooks:
            hook.remove()
    if ran:
        return f"a convolution reads neighbouring positions ({ran[0]})"
    return f"rows are pooled: {pooled[0]} has not one for each token" if pooled else ""


def embeds_several(subject: Subject) -> str:
    """The reason where a row of the first block's input depends on other tokens; else empty."""
    ids = prompt(subject)
    other = subject.content(ids + 1)
    other[:, -1:] = ids[:, -1:]
    if changes(subject, *(embedded(subject, each)[:, -1:] for each in (ids, other))):
        return "what goes into the first block is made of several tokens"
    return ""


def _width(kernel: Any) -> int:
    """The widest side of a kernel."""
    sizes = kernel if isinstance(kernel, tuple | list) else (kernel,)
    return max((size for size in sizes if isinstance(size, int)), default=1)
