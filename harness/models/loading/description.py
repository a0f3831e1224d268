"""Describes the machine that something was timed on."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from assay import harness
from assay.harness.models.loading import runs
from assay.harness.models.machine import accelerators, vitals


def describe(device: torch.device) -> dict[str, object]:
    """Threads, the processor's or GPU's name, its driver, and versions."""
    return {
        "device": str(device),
        "gpu": accelerators.name(device),
        "driver": vitals.driver() if device.type == "cuda" else None,
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
