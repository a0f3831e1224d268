"""The free memory, what may be kept there, and errors that say that it ran out."""

from __future__ import annotations

import ctypes
import gc
import os

import psutil
import torch

from assay.harness.models.machine import accelerators


def free(device: torch.device) -> int:
    """The free bytes of the memory of ``device``."""
    return accelerators.free(device)


_afterwards = 0
"""Bytes of this process in memory after it last gave some back."""


def give_back(least: int = 0) -> None:
    """Collect cycles, and return the freed memory to the system where the C library keeps it.

    A model and the answers about it refer to each other.  glibc keeps freed blocks of some
    megabytes, such as a layer's weights, for later use.  Cycles, for which all objects are looked
    at, 0.2 s, stay where the process has grown by fewer than ``least`` bytes since the last time.
    """
    global _afterwards
    if least:
        if _resident() < _afterwards + least:
            return
        _trim()
        if _resident() < _afterwards + least:
            return
    gc.collect()
    _trim()
    _afterwards = _resident()


def _resident() -> int:
    """Bytes of this process in memory."""
    return int(psutil.Process().memory_info().rss)


def _trim() -> None:
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
