"""Rows of plain passes, computed once for each prompt that laws share and then kept.

Small ones stay in memory, others in temporary files without a name, which are gone with the
process, however it ends.  A pass is looked up inside `reused` only: what a law observes is always
computed.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from assay.harness.models.subject import compat
from assay.harness.models.subject.rows import Output, Rows

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject
    from assay.harness.models.subject.passes import Pass

IN_MEMORY = 1 << 24
"""Bytes of rows kept in memory for each model, and as many for its float64 reference."""

ON_DISK = 1 << 31
"""Bytes of rows kept on disk, likewise."""

_KEPT = "_kept_rows"
"""The attribute of a subject that holds its `KeptRows`."""

Key = tuple[object, ...]


@dataclass
class KeptRows:
    """The rows kept for one model; ``spared`` counts passes and tokens that were looked up."""

    open: bool = False
    memory: int = 0
    disk: int = 0
    spared: list[int] = field(default_factory=lambda: [0, 0])
    _passes: dict[Key, tuple[dict[str, _Entry], tuple[str, ...]]] = field(default_factory=dict)

    def find(self, key: Key, tokens: int) -> Output | None:
        """The output of a pass over ``tokens``, if it is kept and nothing has changed it."""
        if key not in self._passes:
            return None
        entries, pooled = self._passes[key]
        if any(kept._version != version for kept, version, _ in entries.values()):
            return None
        self.spared[0] += 1
        self.spared[1] += tokens
        rows = {name: kept.to(device) for name, (kept, _, device) in entries.items()}
        return Output(Rows(rows), pooled=pooled)

    def keep(self, key: Key, output: Output) -> None:
        """Keep the output of a pass, as far as there is room."""
        entries: dict[str, _Entry] = {}
        for name, tensor in output.rows.tensors.items():
            size, kept = tensor.numel() * tensor.itemsize, tensor
            if self.memory + size <= IN_MEMORY:
                self.memory += size
            elif self.disk + size <= ON_DISK:
                self.disk += size
                try:
                    kept = _mapped(tensor)
                except OSError:  # a full disk: computed again instead
                    self.disk = ON_DISK
                    return
            else:
                return
            entries[name] = kept, kept._version, tensor.device
        self._passes[key] = entries, output.pooled


_Entry = tuple[Tensor, int, torch.device]
"""A kept tensor, its version, and the device that it is looked up on."""


def _mapped(tensor: Tensor) -> Tensor:
    """The same numbers on the CPU, in a file without a name; raises OSError."""
    raw = tensor.detach().cpu().contiguous().view(torch.uint8).numpy()
    with tempfile.TemporaryFile(prefix="assay-") as file:
        file.write(raw.data)
        file.flush()
        mapped = np.memmap(file, dtype=np.uint8, mode="r+", shape=raw.shape)
    return torch.from_numpy(mapped).view(tensor.dtype)


def of(subject: Subject) -> KeptRows:
    """The rows kept for ``subject``."""
    store: KeptRows = vars(subject).setdefault(_KEPT, KeptRows())
    return store


def spared(subject: Subject) -> tuple[int, int]:
    """Passes and tokens of ``subject`` and its float64 reference that were looked up so far."""
    each = [of(model).spared for model in (subject, subject.reference) if model is not None]
    return sum(passes for passes, _ in each), sum(tokens for _, tokens in each)


@contextmanager
def reused(*subjects: Subject) -> Iterator[None]:
    """Look plain passes of ``subjects`` up within a block, and keep new ones."""
    before = [(each, of(each).open) for each in subjects]
    for each in subjects:
        of(each).open = True
    try:
        yield
    finally:
        for each, was in before:
            of(each).open = was


def key(subject: Subject, request: Pass) -> Key | None:
    """What the rows of a pass depend on; None where they are not to be kept.

    Weights count by their place and version: a claim may change them within a block.
    """
    store: KeptRows | None = vars(subject).get(_KEPT)
    if store is None or not store.open or request.ids is None:
        return None
    if request.cache is not None or request.keep or request.embeddings is not None:
        return None
    inputs = [request.ids, request.positions, request.mask, *request.options.values()]
    if not all(each is None or isinstance(each, Tensor | bool | int | str) for each in inputs):
        return None
    model = subject.model
    weights = tuple(map(_place, (*model.parameters(), *model.buffers())))
    attention = tuple(value for _, value in compat.settings(model, compat.ATTENTION))
    settings = (attention, model.training, request.states, tuple(request.options))
    return (id(subject.injected), weights, settings, *map(_digest, inputs))


def _place(weight: Tensor) -> tuple[int, int]:
    """Where the numbers of a weight are, and how often it was written to."""
    stored = getattr(weight, "stored", weight)
    try:
        return stored.data_ptr(), stored._version
    except RuntimeError:  # packed weights of a class of its own
        return id(stored), stored._version


def _digest(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    raw = value.detach().cpu().contiguous().view(torch.uint8).numpy()
    return value.dtype, tuple(value.shape), hashlib.sha256(raw.data).digest()
