"""Names of devices and dtypes, checked: unusable ones are rejected in one line."""

from __future__ import annotations

import os
import warnings

import torch

from assay.harness.models.machine import accelerators
from assay.harness.results.errors import BadInput, brief, printable

AUTO = "auto"
"""In place of a dtype: a checkpoint's own."""

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def parse_dtype(name: str) -> torch.dtype:
    """The dtype of that name; raises `BadInput` for any but the four supported ones.

    `AUTO` is that of models without a checkpoint: float32.
    """
    if name == AUTO:
        return torch.float32
    if name not in DTYPES:
        raise BadInput(f"{name!r}: unsupported dtype; choose from {', '.join(DTYPES)}, {AUTO}")
    return DTYPES[name]


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype's name: ``float32``."""
    return str(dtype).removeprefix("torch.")


def own_dtype(spec: str, stored: torch.dtype) -> torch.dtype:
    """``stored``, in which the checkpoint ``spec`` is meant to run; raises `BadInput`."""
    if stored not in DTYPES.values():
        raise BadInput(
            f"{spec}: its own dtype is {dtype_name(stored)}; say --dtype={' or '.join(DTYPES)}"
        )
    return stored


def parse_device(name: str) -> torch.device:
    """The available device of that name (``cuda`` becomes the current GPU).

    Raises `BadInput` for an unknown name, or a device that this machine or build lacks.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(f"{name!r}: is not a device; try cpu or cuda:0") from None
    if device.type == "meta":
        raise BadInput(f"{name!r}: stores no numbers; try cpu or cuda:0")
    if device.type in accelerators.SEEDED:
        kind = device.type
        gpus, why = _counted(kind)
        if gpus == 0:
            raise BadInput(f"{name!r}: {why}; try cpu")
        if device.index is not None and device.index >= gpus:
            here = f"{gpus} {kind.upper()} GPU{'s' * (gpus > 1)} here"
            raise BadInput(
                f"{name!r}: is not there, the last {kind.upper()} GPU is {kind}:{gpus - 1} "
                f"({here}{_visible()})"
            )
        device = accelerators.current(kind) if device.index is None else device
    if device.type == "cpu":
        device = torch.device("cpu")  # torch accepts any index, but there is one CPU
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        raise BadInput(f"{name!r}: cannot be used here ({brief(error, 80)}); try cpu") from error
    return device


def _counted(kind: str) -> tuple[int, str]:
    """How many GPUs of a kind there are, and why there is none.

    Torch warns of a driver that is too old, once, and says no more.
    """
    none = f"torch {torch.__version__} finds no {kind.upper()} GPU"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            gpus = accelerators.count(kind)
        except (RuntimeError, AssertionError) as error:
            return 0, f"{none} ({brief(error, 160)})"
    said = [printable(str(each.message))[:200] for each in caught]
    return gpus, f"{none}{f' ({said[0]})' if said else ''}{_visible()}"


def _visible() -> str:
    """The variable that hides GPUs, if it is set."""
    hiding = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if hiding is None else f"; CUDA_VISIBLE_DEVICES is {hiding!r}"


def check_pair(device: torch.device, dtype: torch.dtype) -> None:
    """Raise `BadInput` unless ``device`` multiplies matrices in ``dtype``."""
    try:
        ones = torch.ones(2, 2, device=device, dtype=dtype)
        usable = bool(((ones @ ones).float() == 2.0).all())
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise BadInput(f"{device} cannot compute in {dtype} ({brief(error, 80)})") from error
    if not usable:
        raise BadInput(f"{device} computes wrongly in {dtype}: a product of ones is not right")
