"""Reads a device's state while it is timed: clock, temperature, power, throttling.

An Nvidia GPU by nvidia-ml-py where that is installed; a processor by psutil, which reports its
clock and the machine's load.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil
import torch

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
    """At one moment: ``clock`` and the ``fastest`` one in MHz, ``celsius``, ``watts``, ``joules``
    since the driver began to count, why the clock is throttled, and the machine's ``load``: the
    number of processes that want a processor, with this one; the ``memory_clock`` in MHz, and the
    errors of memory since the driver was loaded that ECC ``corrected`` and ``uncorrected``.  None:
    unknown.
    """

    clock: float | None = None
    fastest: float | None = None
    celsius: float | None = None
    watts: float | None = None
    joules: float | None = None
    throttled: tuple[str, ...] = ()
    load: float | None = None
    memory_clock: float | None = None
    corrected: int | None = None
    uncorrected: int | None = None


Monitor = Callable[[], Vitals]


def monitor(device: torch.device) -> Monitor:
    """The function that reads the vitals of ``device``."""
    if device.type == "cuda":
        with suppress(ImportError):
            return _card(device)
        return Vitals
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
    """Vitals of the processor; a virtual machine may lack some."""
    clock: Any = None
    with suppress(Exception):  # psutil reads files that not every system has
        clock = psutil.cpu_freq()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    if clock is None:
        return Vitals(load=load)
    return Vitals(clock=clock.current, fastest=clock.max or None, load=load)


def handle_of(device: torch.device) -> Any:
    """The driver's handle of a GPU or of a slice of one (MIG), by its UUID.

    Raises the driver's error, or AttributeError where torch does not know the UUID.
    """
    import pynvml  # optional: only a machine with a GPU needs it

    uuid = str(torch.cuda.get_device_properties(device).uuid)
    names = [uuid] if uuid[:4] in ("GPU-", "MIG-") else [f"GPU-{uuid}", f"MIG-{uuid}"]
    for name in names[:-1]:
        with suppress(pynvml.NVMLError):
            return pynvml.nvmlDeviceGetHandleByUUID(name)
    return pynvml.nvmlDeviceGetHandleByUUID(names[-1])


def ecc(pynvml: Any, kind: str) -> tuple[int, int]:
    """The driver's numbers for errors of a kind since it was loaded."""
    return getattr(pynvml, f"NVML_MEMORY_ERROR_TYPE_{kind}"), pynvml.NVML_VOLATILE_ECC


def _card(device: torch.device) -> Monitor:
    """The monitor of a GPU; raises ImportError where the driver's library is missing."""
    import pynvml  # optional: only a machine with a GPU needs it

    try:
        pynvml.nvmlInit()
        handle = handle_of(device)
    except (pynvml.NVMLError, AttributeError) as error:
        raise ImportError(f"no vitals of {device}: {error}") from error

    def ask(name: str, *arguments: Any) -> Any:
        with suppress(pynvml.NVMLError, AttributeError):  # an older driver, an older library
            return getattr(pynvml, name)(handle, *arguments)
        return None

    def scaled(value: float | None, by: float) -> float | None:
        return None if value is None else value / by

    def now() -> Vitals:
        bits = ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # its earlier name
            bits = ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return Vitals(
            clock=ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
            fastest=ask("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),
            celsius=ask("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
            watts=scaled(ask("nvmlDeviceGetPowerUsage"), 1e3),
            joules=scaled(ask("nvmlDeviceGetTotalEnergyConsumption"), 1e3),
            memory_clock=ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
            corrected=ask("nvmlDeviceGetTotalEccErrors", *ecc(pynvml, "CORRECTED")),
            uncorrected=ask("nvmlDeviceGetTotalEccErrors", *ecc(pynvml, "UNCORRECTED")),
            throttled=tuple(why for bit, why in THROTTLES.items() if bits & bit),
        )

    return now
