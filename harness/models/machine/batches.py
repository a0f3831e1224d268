"""Sizes batches by the free memory, and halves them when memory runs out."""

from __future__ import annotations

from collections.abc import Callable

import torch

from assay.harness.models.machine import memory

SHARE = 0.25
"""Share of the free memory for the activations of one pass."""


def rows_that_fit(device: torch.device, bytes_each: float) -> int:
    """How many rows of ``bytes_each`` fit in one pass: at least 1."""
    return max(1, int(SHARE * memory.free(device) / bytes_each))


def in_batches(
    run: Callable[[slice], None], rows: int, size: int, messages: list[str] | None = None
) -> None:
    """``run`` over slices of ``rows``, ``size`` at a time.

    A slice that runs out of memory is retried with half the size, which is noted in ``messages``;
    ``run`` must have done nothing then.
    """
    size, start = min(rows, size), 0
    while start < rows:
        try:
            run(slice(start, min(rows, start + size)))
        except (RuntimeError, MemoryError) as error:
            if size == 1 or not memory.lacking(error):
                raise
            size //= 2
            if messages is not None:
                messages.append(f"too little memory: {size} rows at a time")
            continue
        start += size
