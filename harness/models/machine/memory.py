"""The free memory, what may be kept there, and errors that say that it ran out."""

from __future__ import annotations

import ctypes
import gc
import os

import torch

from assay.harness.models.machine import accelerators


def free(device: torch.device) -> int:
    """The free bytes of the memory of ``device``."""
    return accelerators.free(device)


def give_back() -> None:
    """Collect cycles, and return the freed memory to the system where the C library keeps it.

    A model and the answers about it refer to each other.  glibc keeps freed blocks of some
    megabytes, such as a layer's weights, for later use.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


LACKING = ("out of memory", "allocate memory", "not enough memory", "ALLOC_FAILED")
"""Messages of errors without a class of their own."""


def lacking(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out; a CPU's error has no class of its own."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in LACKING)
