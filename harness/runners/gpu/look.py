"""What a GPU is and what stands in the way of using it: read in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from assay.harness.models import accelerators, machine, vitals
from assay.harness.results.errors import BadInput

LEAST = 2 * 10**9
"""Free bytes below which nothing is started."""

GB = 1e9


def describe(device: torch.device) -> dict[str, Any]:
    """The device, its memory, and other processes on it."""
    facts = machine.describe(device)
    if device.type == "cpu":
        return facts
    torch.ones(8, device=device).sum().item()  # it answers
    return {
        **facts,
        "free": accelerators.unused(device),
        "total": accelerators.total(device),
        "others": _others(device),
        "sliced": "MIG" in str(facts["card"]),
        "blocking": accelerators.launches_block(),
    }


def _others(device: torch.device) -> list[list[int]]:
    """Other processes that compute on a GPU: number and bytes, where the driver knows them."""
    if device.type != "cuda":
        return []
    try:
        import pynvml  # optional: only a machine with a GPU needs it

        pynvml.nvmlInit()
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(vitals.handle_of(device))
    except Exception:  # no library, no driver, or no right to ask: it is not needed
        return []
    own = os.getpid()
    return [[each.pid, int(each.usedGpuMemory or 0)] for each in running if each.pid != own]


def refuse_full(facts: Mapping[str, Any]) -> None:
    """Raise `BadInput` where too little memory is free to begin."""
    if facts.get("free") is None or facts["free"] >= LEAST:
        return
    whose = f"; {_whose(facts['others'])}" if facts.get("others") else ""
    raise BadInput(
        f"{facts['device']}: is full, {facts['free'] / GB:.1f} of {facts['total'] / GB:.1f} GB "
        f"are free{whose}; end what uses it, or name another GPU"
    )


def doubts(facts: Mapping[str, Any]) -> list[str]:
    """Why times on it are not those of the GPU alone, a line for each reason."""
    lines, device = [], facts["device"]
    if facts.get("others"):
        lines.append(f"{device} is shared ({_whose(facts['others'])}): times are not its own")
    if facts.get("sliced"):
        lines.append(f"{device} is a MIG slice ({facts['card']}): compare it with the like")
    if facts.get("blocking"):
        lines.append("CUDA_LAUNCH_BLOCKING is set, so every operation is waited for; unset it")
    return lines


def _whose(others: list[list[int]]) -> str:
    listed = ", ".join(f"process {pid}, {used / GB:.1f} GB" for pid, used in others[:3])
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return f"{len(others)} other process{'es' * (len(others) > 1)}: {listed}{more}"
