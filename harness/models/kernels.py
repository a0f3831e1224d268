"""The kernels of scaled dot-product attention: which torch may use, and which it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import attention

from assay.harness.results.errors import BadInput, brief

BACKENDS = {
    "math": "MATH",
    "efficient": "EFFICIENT_ATTENTION",
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
"""Backends by the names of `torch.nn.attention.SDPBackend`."""

ran: Counter[str] = Counter()
"""How often `using` could use the preferred kernel, and how often it could not."""

TRIED, FELL_BACK = "preferred", "math in its place"


def backend(name: str) -> Any:
    """Torch's backend of that name; raises `BadInput`."""
    if name not in BACKENDS:
        raise BadInput(f"attention kernel {name!r}: there are {', '.join(BACKENDS)}")
    found = getattr(attention.SDPBackend, BACKENDS[name], None)
    if found is None:
        raise BadInput(f"attention kernel {name}: torch {torch.__version__} has none")
    return found


def preferred(name: str, device: torch.device) -> Any:
    """The backend, once it has computed on ``device`` in 16 bits; raises `BadInput`."""
    found = backend(name)
    query = torch.ones(1, 2, 16, 64, device=device, dtype=torch.bfloat16)
    try:
        with attention.sdpa_kernel([found]), torch.no_grad():
            result = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    except (RuntimeError, NotImplementedError) as error:
        raise BadInput(f"attention kernel {name}: not on {device} ({brief(error, 80)})") from error
    if not bool((result.float() - 1).abs().max() < 0.01):
        raise BadInput(f"attention kernel {name}: computes wrongly on {device}")
    return found


@contextmanager
def using(kernel: Any) -> Iterator[None]:
    """Attention uses ``kernel`` within the block where it can, and plain products elsewhere.

    A kernel that takes no mask, say, cannot serve padded prompts: torch's own function raises
    then, and the same call is computed by `SDPBackend.MATH`.  `ran` counts both.
    """
    own = torch.nn.functional.scaled_dot_product_attention

    def chosen(*arguments: Any, **settings: Any) -> Any:
        try:
            with attention.sdpa_kernel([kernel]):
                result = own(*arguments, **settings)
        except RuntimeError as error:
            if "No available kernel" not in str(error):
                raise
            ran[FELL_BACK] += 1
            with attention.sdpa_kernel([attention.SDPBackend.MATH]):
                return own(*arguments, **settings)
        ran[TRIED] += 1
        return result

    torch.nn.functional.scaled_dot_product_attention = chosen
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = own
