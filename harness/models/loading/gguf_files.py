"""Reads the header of a GGUF file: no number in it is believed before the file's length allows it.

Transformers, with the package gguf, makes floats of its weights on loading.  Their own readers run
through any array that a header promises.
"""

from __future__ import annotations

import math
import os
import re
import struct
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from assay.harness.models.loading.other_formats import GGUF
from assay.harness.models.loading.stored import FLOATS, Stored, StoredTensor
from assay.harness.results.errors import BadInput, listed

MAGIC = b"GGUF"

VERSIONS = (2, 3)
"""Versions of the format; the first counted in 32 bits, and no file of it is left."""

WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value of each type of fixed size."""

TEXT, ARRAY, UNSIGNED = 8, 9, 4
"""Types of a value: a text, an array, and a number of 32 bits."""

DIMENSIONS = 4
"""The most dimensions of a tensor."""

PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
"""The end of the name of a file of several."""

LATER = "F32"
"""The dtype that quantised tensors have once they are loaded."""


@dataclass(frozen=True)
class Gguf:
    """A GGUF file: its architecture, its tensors by their names in it, whether it has tokens."""

    path: Path
    architecture: str
    stored: Stored
    has_tokens: bool


def within(folder: Path, spec: str) -> Path | None:
    """The GGUF file that a folder holds in place of safetensors; None if it has none.

    Raises `BadInput` for several, and for one alongside safetensors.
    """
    if not (files := sorted(folder.glob(f"*{GGUF}"))):
        return None
    names = [path.name for path in files]
    if any(folder.glob("*.safetensors")):
        raise BadInput(
            f"{spec}: holds safetensors and {listed(names, 1)}; give the GGUF file's path, or a "
            "folder without it"
        )
    if len(files) > 1:
        raise BadInput(f"{spec}: holds {len(files)} GGUF files; give one of them: {listed(names)}")
    return files[0]


def read(path: Path, spec: str) -> Gguf:
    """The header of a file of ``spec``; raises `BadInput`, also without the package gguf."""
    if find_spec("gguf") is None:
        raise BadInput(f"{spec}: is of GGUF; install gguf (assay-lm[quantised])")
    if PART.search(path.name):
        raise BadInput(f"{spec}: {path.name} is one file of several; join them first")
    if not path.is_file():
        raise BadInput(f"{spec}: {path.name} is not a regular file")
    try:
        with path.open("rb") as file:
            return _Header(file, os.fstat(file.fileno()).st_size).read(path)
    except OSError as error:
        raise BadInput(f"{spec}: {path.name} cannot be read: {error.strerror}") from error
    except _Damaged as error:
        raise BadInput(f"{spec}: {path.name} {error}; copy or download it again") from error


class _Damaged(Exception):
    """What is wrong with a file."""


@dataclass
class _Header:
    """A file that is read from its beginning, and its ``size`` in bytes."""

    file: IO[bytes]
    size: int
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Numbers and bytes in a block, by the type of a tensor."""

    def read(self, path: Path) -> Gguf:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        self.sizes = {int(kind): size for kind, size in GGML_QUANT_SIZES.items()}
        if (start := self._bytes(4)) != MAGIC:
            raise _Damaged(f"is not of GGUF: it begins with {start!r}")
        version, tensors, values = self._numbers("<IQQ")
        if version not in VERSIONS:
            raise _Damaged(
                f"is of version {version} of GGUF, not {' or '.join(map(str, VERSIONS))}"
            )
        metadata = {self._text(): self._value() for _ in self._counted(values, 12)}
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise _Damaged("names no architecture")
        infos = dict(self._tensor() for _ in self._counted(tensors, 24))
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise _Damaged(f"has an alignment of {alignment!r}")
        data = -(-self.file.tell() // alignment) * alignment
        end = max((data + begin + tensor.size for begin, tensor in infos.values()), default=0)
        if end > self.size:
            raise _Damaged(f"is truncated: {self.size} of {end} bytes are there")
        names = {int(kind): kind.name for kind in GGMLQuantizationType}
        stored = {
            name: StoredTensor(_kind(names[int(tensor.dtype)]), tensor.shape, tensor.size)
            for name, (_, tensor) in infos.items()
        }
        return Gguf(path, architecture, Stored(stored), "tokenizer.ggml.tokens" in metadata)

    def _tensor(self) -> tuple[str, tuple[int, StoredTensor]]:
        """A tensor's name, its place after the header, and what it holds (a type's number)."""
        name = self._text()
        (count,) = self._numbers("<I")
        if count > DIMENSIONS:
            raise _Damaged(f"gives {name!r} {count} dimensions")
        shape = tuple(reversed(self._numbers(f"<{count}Q")))
        kind, begin = self._numbers("<IQ")
        if kind not in self.sizes:
            raise _Damaged(f"holds {name!r} in a type of number {kind}, which gguf does not know")
        block, width = self.sizes[kind]
        return name, (begin, StoredTensor(str(kind), shape, math.prod(shape) // block * width))

    def _value(self) -> Any:
        """A value of the metadata, or None for one that nothing here asks for."""
        (kind,) = self._numbers("<I")
        if kind == TEXT:
            return self._text()
        if kind == UNSIGNED:
            return self._numbers("<I")[0]
        if kind == ARRAY:
            kind, count = self._numbers("<IQ")
            if kind == TEXT:
                for _ in self._counted(count, 8):
                    self._skip(self._numbers("<Q")[0])
                return None
            self._skip(self._width(kind) * count)
            return None
        self._skip(self._width(kind))
        return None

    def _width(self, kind: int) -> int:
        if kind not in WIDTHS:
            raise _Damaged(f"has a value of type {kind}")
        return WIDTHS[kind]

    def _text(self) -> str:
        (length,) = self._numbers("<Q")
        return self._bytes(length).decode("utf-8", "replace")

    def _numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._bytes(struct.calcsize(layout)))

    def _counted(self, count: int, least: int) -> range:
        """``count`` entries of at least so many bytes, which the file must have."""
        self._need(count * least)
        return range(count)

    def _bytes(self, count: int) -> bytes:
        self._need(count)
        return self.file.read(count)

    def _skip(self, count: int) -> None:
        self._need(count)
        self.file.seek(count, os.SEEK_CUR)

    def _need(self, count: int) -> None:
        if self.file.tell() + count > self.size:
            raise _Damaged(f"is truncated or corrupt: its header ends beyond {self.size} bytes")


def _kind(name: str) -> str:
    return name if name in FLOATS else LATER
