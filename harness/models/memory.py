"""Sizes batches by the free memory, and halves them when memory runs out."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import torch

from assay.harness.results.errors import text_of

SHARE = 0.25
"""Of the memory that is free, for the activations of one pass."""


def free(device: torch.device) -> int:
    """Bytes that are free where ``device`` computes."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    return psutil.virtual_memory().available


def rows_that_fit(device: torch.device, bytes_each: float) -> int:
    """How many rows of ``bytes_each`` go through one pass: at least 1."""
    return max(1, int(SHARE * free(device) / bytes_each))


LACKING = ("out of memory", "allocate memory", "not enough memory", "ALLOC_FAILED")
"""What errors say for which there is no class."""


def lacking(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out; what a CPU raises is no class of its own."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in text_of(error) for words in LACKING)


def in_batches(
    run: Callable[[slice], None], rows: int, size: int, said: list[str] | None = None
) -> None:
    """``run`` over slices of ``rows``, ``size`` at a time.

    One that runs out of memory is tried again with half, which is added to ``said``; ``run`` must
    have done nothing then.
    """
    size, done = min(rows, size), 0
    while done < rows:
        try:
            run(slice(done, min(rows, done + size)))
        except (RuntimeError, MemoryError) as error:
            if size == 1 or not lacking(error):
                raise
            size //= 2
            if said is not None:
                said.append(f"too little memory: {size} rows at a time")
            continue
        done += size
