"""Names of devices and dtypes, checked: unusable ones are rejected in one line."""

from __future__ import annotations

import torch

from assay.harness.results.errors import BadInput, brief

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
    if device.type == "cuda":
        cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if cards == 0:
            raise BadInput(f"{name!r}: torch {torch.__version__} finds no CUDA GPU; try cpu")
        if device.index is not None and device.index >= cards:
            raise BadInput(f"{name!r}: is not there, the last CUDA GPU is cuda:{cards - 1}")
        index = torch.cuda.current_device() if device.index is None else device.index
        device = torch.device("cuda", index)
    if device.type == "cpu":
        device = torch.device("cpu")  # torch accepts any index, but there is one CPU
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        raise BadInput(f"{name!r}: cannot be used here ({brief(error, 80)}); try cpu") from error
    return device


def check_pair(device: torch.device, dtype: torch.dtype) -> None:
    """Raise `BadInput` unless ``device`` multiplies matrices in ``dtype``."""
    try:
        ones = torch.ones(2, 2, device=device, dtype=dtype)
        usable = bool(((ones @ ones).float() == 2.0).all())
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise BadInput(f"{device} cannot compute in {dtype} ({brief(error, 80)})") from error
    if not usable:
        raise BadInput(f"{device} computes wrongly in {dtype}: a product of ones is not right")
