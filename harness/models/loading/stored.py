"""Reads the shapes and dtypes of tensors from the headers of weight files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from assay.harness.models.loading.weight_files import read_header
from assay.harness.results.errors import BadInput, listed

FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
"""Floating-point dtypes by their names in a safetensors header."""

ENTRY = re.compile(r"(.+?)\.(\d+)\.")
"""The beginning of the name of a tensor in an entry of a list: ``model.layers.0.``."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's dtype as named in the format, its shape, and its size in bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Stored:
    """The tensors of all weight files, by name."""

    tensors: Mapping[str, StoredTensor]

    @cached_property
    def floats(self) -> int:
        """The number of floating-point numbers."""
        tensors = (t for t in self.tensors.values() if t.dtype in FLOATS)
        return sum(math.prod(tensor.shape) for tensor in tensors)

    @cached_property
    def other_bytes(self) -> int:
        """The bytes of all other tensors."""
        return sum(t.size for t in self.tensors.values() if t.dtype not in FLOATS)

    @property
    def parameters(self) -> int:
        """The largest possible number of parameters: integers may pack one in each bit."""
        return self.floats + 8 * self.other_bytes

    @cached_property
    def exact(self) -> torch.dtype:
        """The narrowest common dtype that represents all floating-point numbers exactly."""
        dtypes = {t.dtype for t in self.tensors.values()} & FLOATS.keys()
        if "F64" in dtypes:
            return torch.float64
        if len(dtypes) == 1 and dtypes <= {"F16", "BF16"}:
            return FLOATS[next(iter(dtypes))]
        return torch.float32

    @cached_property
    def first(self) -> torch.dtype:
        """The dtype of the first floating-point tensor by name, but for those of 8 bits.

        Float32 where there is none.
        """
        dtypes = (FLOATS[t.dtype] for _, t in sorted(self.tensors.items()) if t.dtype in FLOATS)
        return next((dtype for dtype in dtypes if dtype.itemsize > 1), torch.float32)

    @cached_property
    def widest(self) -> int:
        """The largest dimension of a tensor."""
        return max((n for t in self.tensors.values() for n in t.shape), default=0)

    @cached_property
    def lists(self) -> dict[str, int]:
        """The outermost lists of modules by name, with their lengths."""
        lengths: dict[str, int] = {}
        for name, index in outermost(self.tensors):
            lengths[name] = max(lengths.get(name, 0), index + 1)
        return lengths

    def __str__(self) -> str:
        longest = sorted(self.lists, key=self.lists.__getitem__, reverse=True)
        text = f"{len(self.tensors)} tensors of {self.floats} numbers"
        text += "".join(f", {self.lists[name]} entries in {name}" for name in longest[:2])
        return f"{text}, no dimension above {self.widest}"


def outermost(names: Iterable[str]) -> list[tuple[str, int]]:
    """The outermost list of each tensor that is in one, and its index there."""
    matches = filter(None, map(ENTRY.match, names))
    return [(match[1], int(match[2])) for match in matches]


def read(weights: Mapping[Path, set[str]], spec: str) -> Stored:
    """The tensors in the files of ``spec``, each file with the names that the index promises.

    Raises `BadInput` for a damaged file or one that lacks a promised tensor.
    """
    tensors: dict[str, StoredTensor] = {}
    for path, promised in weights.items():
        header = read_header(path, spec)
        if absent := sorted(promised - header.keys()):
            raise BadInput(f"{spec}: {path.name} lacks {listed(absent)}, which the index names")
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            tensors[name] = StoredTensor(entry["dtype"], tuple(entry["shape"]), end - begin)
    return Stored(tensors)
