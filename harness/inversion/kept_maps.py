"""Keeps linear maps on disk: by the model's digest, the target, the dtype, and this format."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from assay.harness.inversion.linear_map import LinearMap, Slope
from assay.harness.inversion.target import Target, embedded
from assay.harness.models.subject import Subject
from assay.harness.results.cache_folder import cache_folder

FORMAT = 1
"""Of the files: raised when the estimate or its fields change."""

SLOPES, NUMBERS = ("first", "guess", "again"), ("linear", "weights", "halves")
"""The names of a map's slopes, and of a slope's numbers."""


def default_folder() -> Path | None:
    """``inversion`` in Assay's cache; None where there is no home."""
    try:
        return cache_folder() / "inversion"
    except RuntimeError:
        return None


def path_of(folder: Path, subject: Subject, target: Target) -> Path | None:
    """The file for ``target``; None for a model without a digest, which cannot be told apart."""
    if not subject.digest:
        return None
    words = f"{FORMAT} {subject.digest} {target!r} {subject.dtype} {subject.attention}"
    return folder / f"{hashlib.sha256(words.encode()).hexdigest()[:32]}.safetensors"


def read(path: Path, subject: Subject, basis: Tensor | None = None) -> LinearMap | None:
    """The map in ``path``, of states times ``basis``; None where there is none, or damage."""
    table, device = embedded(subject), str(subject.device)
    try:
        with safe_open(path, "pt", device=device) as file:
            parts = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        first, guess, again = (
            Slope(*(parts[f"{name}.{each}"] for each in NUMBERS)) for name in SLOPES
        )
        centre, means, states = (parts[name] for name in ("centre", "means", "states"))
        axes = (parts["axes.first"], parts["axes.later"])
    except (OSError, SafetensorError, KeyError):
        return None
    if centre.shape != table.shape[1:] or first.halves.shape != table.shape[:1]:
        return None
    return LinearMap(table, centre, means, first, guess, again, axes, int(states), basis)


def write(path: Path, known: LinearMap) -> None:
    """Write ``known``, all of it or nothing; what cannot be written is made again next time."""
    parts: dict[str, Tensor] = {
        "centre": known.centre,
        "means": known.means,
        "states": torch.tensor(known.states),
        "axes.first": known.axes[0],
        "axes.later": known.axes[1],
    }
    for name in SLOPES:
        slope: Slope = getattr(known, name)
        parts |= {f"{name}.{each}": getattr(slope, each) for each in NUMBERS}
    with suppress(OSError, SafetensorError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        os.close(handle)
        try:
            save_file({name: part.contiguous() for name, part in parts.items()}, name)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)
