"""The machine that something is timed on, and its state meanwhile: clock, and why it is throttled.

An Nvidia GPU by nvidia-ml-py where that is installed; a processor's clock by psutil.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from assay import harness
from assay.harness.models.loading import runs
from assay.harness.models.machine import accelerators

THROTTLES = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Reasons why a GPU lowers its clock, by the driver's bits, without idleness and set clocks."""


@dataclass(frozen=True)
class Vitals:
    """At one moment: the ``clock`` in MHz (None: unknown), and why it is ``throttled``."""

    clock: float | None = None
    throttled: tuple[str, ...] = ()


Monitor = Callable[[], Vitals]


def monitor(device: torch.device) -> Monitor:
    """The function that reads the vitals of ``device``."""
    if device.type == "cuda":
        return _gpu(device) or Vitals
    return _processor


def driver() -> str | None:
    """The version of the GPU's driver, where nvidia-ml-py knows it."""
    try:
        import pynvml  # optional: only a machine with a GPU needs it

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # no library, or no driver: neither is needed to time anything
        return None


def _processor() -> Vitals:
    clock: Any = None
    with suppress(Exception):  # psutil reads files that not every system has
        clock = psutil.cpu_freq()
    return Vitals() if clock is None else Vitals(clock.current)


def _gpu(device: torch.device) -> Monitor | None:
    """The monitor of a GPU; None where its driver is not reached."""
    try:
        import pynvml  # optional: only a machine with a GPU needs it

        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid if "-" in uuid[:4] else f"GPU-{uuid}")
    except Exception:  # no library, no driver, or a name that it does not know
        return None

    def now() -> Vitals:
        with suppress(pynvml.NVMLError, AttributeError):  # an older driver, an older library
            bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
            clock = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            return Vitals(clock, tuple(why for bit, why in THROTTLES.items() if bits & bit))
        return Vitals()

    return now


def describe(device: torch.device) -> dict[str, object]:
    """Threads, the processor's or GPU's name, its driver, and versions."""
    return {
        "device": str(device),
        "gpu": accelerators.name(device),
        "driver": driver() if device.type == "cuda" else None,
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "assay": harness.__version__,
        **runs.versions(),
    }


def processor() -> str:
    """The processor's name, as far as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
