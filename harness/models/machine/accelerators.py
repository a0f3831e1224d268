"""What torch says of accelerators: of CUDA, Apple's MPS and Intel's XPU by the same functions.

`torch.accelerator` serves where torch has it (2.6; its memory statistics are newer); else, and for
what it lacks, the module of the kind does (``torch.cuda``).  Functions of a processor's device
return what is true of it: there is nothing to wait for, and no memory of its own.
"""

from __future__ import annotations

from typing import Any

import psutil
import torch

KINDS = ("cuda", "xpu", "mps")
"""Kinds of accelerators, in the order in which they are looked for."""

SEEDED = ("cuda", "xpu")
"""Kinds whose generators `torch.random.fork_rng` sets back."""


def module(kind: str) -> Any:
    """Torch's module of a kind: ``torch.cuda``; None for a processor, or if torch has none."""
    return getattr(torch, kind, None) if kind in KINDS else None


def general(kind: str) -> Any:
    """`torch.accelerator` where this torch has it, if the accelerator here is of ``kind``."""
    here = getattr(torch, "accelerator", None)
    if here is None or not here.is_available():
        return None
    return here if here.current_accelerator().type == kind else None


def count(kind: str) -> int:
    """How many accelerators of a kind this process can use; 0 if none."""
    if (here := general(kind)) is not None:
        return int(here.device_count())
    of_kind = module(kind)
    if of_kind is None or not of_kind.is_available():
        return 0
    return int(of_kind.device_count()) if hasattr(of_kind, "device_count") else 1


def kind_here() -> str | None:
    """The kind of accelerator of this machine; None where there is none."""
    return next((kind for kind in KINDS if count(kind)), None)


def current(kind: str) -> torch.device:
    """The accelerator of a kind that torch uses if none is named."""
    of_kind = module(kind)
    index = of_kind.current_device() if hasattr(of_kind, "current_device") else 0
    return torch.device(kind, int(index))


def capturing(device: torch.device | None = None) -> bool:
    """Whether operations are recorded as a graph now: nothing may be waited for or read then."""
    kind = device.type if device is not None else kind_here()
    of_kind = module(kind) if kind else None
    query = getattr(of_kind, "is_current_stream_capturing", None)
    return bool(query()) if query is not None and kind and count(kind) else False


def wait(device: torch.device) -> None:
    """Wait until ``device`` has finished its work; never while a graph is recorded there."""
    of_kind = module(device.type)
    if of_kind is None or not count(device.type) or capturing(device):
        return
    if (here := general(device.type)) is not None:
        here.synchronize(device)
    elif device.type == "mps":
        of_kind.synchronize()
    else:
        of_kind.synchronize(device)


def wait_for_all(kind: str | None) -> None:
    """Wait for every accelerator of a kind: of a model that lies on several."""
    for index in range(count(kind) if kind else 0):
        wait(torch.device(str(kind), index))


def name(device: torch.device) -> str | None:
    """The accelerator's name; None for a processor."""
    of_kind = module(device.type)
    if of_kind is None or not count(device.type):
        return None
    named = getattr(of_kind, "get_device_name", None)
    return str(named(device)) if named is not None else device.type


def free(device: torch.device) -> int:
    """The free bytes of the memory of ``device``, with those that torch keeps for reuse."""
    of_kind = module(device.type)
    if of_kind is None:
        return int(psutil.virtual_memory().available)
    if device.type == "mps":  # it shares the machine's memory, up to a recommended most
        most = int(of_kind.recommended_max_memory()) - int(of_kind.driver_allocated_memory())
        return min(max(0, most), int(psutil.virtual_memory().available))
    spare = of_kind.memory_reserved(device) - of_kind.memory_allocated(device)
    return int(of_kind.mem_get_info(device)[0] + spare)


def total(device: torch.device) -> int | None:
    """All bytes of an accelerator's memory; None for a processor, or if unknown."""
    of_kind = module(device.type)
    if of_kind is None or not hasattr(of_kind, "mem_get_info"):
        return None
    return int(of_kind.mem_get_info(device)[1])


def release(kind: str | None = None) -> None:
    """Give the memory that torch keeps for reuse back, so that others can have it."""
    kind = kind or kind_here() or ""
    of_kind = module(kind)
    if of_kind is None:
        return
    here = general(kind)
    (here if hasattr(here, "empty_cache") else of_kind).empty_cache()  # there since 2.9


def forked(device: torch.device) -> Any:
    """A block after which the generators of the processor and of ``device`` are as before."""
    seeded = device.type in SEEDED
    kind = device.type if seeded else "cuda"
    return torch.random.fork_rng(devices=[device] if seeded else [], device_type=kind)
