"""The tensors in a model's files, by name: listed from the headers, and read one at a time.

The library safetensors reads its own files, the optional package gguf reads GGUF; neither builds a
model.  Their errors become one line that names the file.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from assay.harness.models.loading.folders import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    ENDING,
    INDEX,
    gguf_file,
    pointer,
    weight_files,
    weight_map,
)
from assay.harness.results.errors import BadInput, brief, listed

if TYPE_CHECKING:  # a file that is missing or damaged is named before torch is imported
    import torch
    from torch import Tensor

DTYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"},
    **{"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8"},
    **{"U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8"},
    **{"BOOL": "bool", "C64": "complex64"},
}
"""Torch's names of dtypes by those in safetensors, which GGUF has for those that it shares."""

SHARD = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
"""The files of weights that `save_pretrained` writes; others may be of another layout."""

PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
"""The end of the name of a GGUF file of several."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in the file ``path``: its name there, its shape, and the dtype that `read` returns.

    ``dtype_name`` is torch's name: float32 of a quantised tensor in GGUF, and None where torch
    cannot read it.
    """

    name: str
    shape: tuple[int, ...]
    dtype_name: str | None
    path: Path
    _read: Callable[[], Tensor] = field(repr=False, compare=False)

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of ``dtype_name``."""
        import torch

        return None if self.dtype_name is None else getattr(torch, self.dtype_name)

    @property
    def is_float(self) -> bool:
        """Whether its numbers are floating-point."""
        return self.dtype is not None and self.dtype.is_floating_point

    def read(self) -> Tensor:
        """The numbers: a tensor of ``shape`` and ``dtype`` on the CPU, read at each call.

        Raises `BadInput` where the file is damaged by now, or torch or gguf cannot read the dtype.
        """
        with _errors_of(self.path, str(self.path)):
            return self._read()


@dataclass(frozen=True)
class Stored:
    """The tensors of all files of a model, by name; a GGUF file may also have a tokenizer."""

    tensors: Mapping[str, StoredTensor]
    has_tokenizer: bool = False

    @cached_property
    def floats(self) -> int:
        """The number of floating-point numbers."""
        return sum(math.prod(each.shape) for each in self.tensors.values() if each.is_float)

    @cached_property
    def other_bytes(self) -> int:
        """The bytes of all other tensors."""
        others = (each for each in self.tensors.values() if not each.is_float)
        return sum(
            math.prod(each.shape) * (each.dtype.itemsize if each.dtype else 1) for each in others
        )

    @cached_property
    def exact(self) -> torch.dtype:
        """The narrowest common dtype that represents all floating-point numbers exactly."""
        import torch

        dtypes = {each.dtype for each in self.tensors.values() if each.dtype and each.is_float}
        if dtypes in ({torch.float16}, {torch.bfloat16}):
            return dtypes.pop()
        return torch.float64 if torch.float64 in dtypes else torch.float32

    @cached_property
    def first(self) -> torch.dtype:
        """The dtype of the first floating-point tensor of the first file, but for those of 8 bits.

        Float32 where there is none.
        """
        import torch

        first = min((each.path for each in self.tensors.values()), default=None)
        dtypes = [
            each.dtype
            for _, each in sorted(self.tensors.items())
            if each.path == first and each.dtype and each.is_float and each.dtype.itemsize > 1
        ]
        return dtypes[0] if dtypes else torch.float32


def inspect(path: Path, spec: str, chosen: object = None) -> Stored:
    """Every tensor of a model's folder, an adapter's folder or a GGUF file; reads no numbers.

    ``spec`` names the model in messages; for ``chosen`` see `folders.weight_files`.  Raises
    `BadInput` for a file that is missing, truncated or damaged, and for a tensor that an index
    names and its file lacks.
    """
    if (path / ADAPTER).exists():
        files: dict[Path, set[str]] = {path / ADAPTER_WEIGHTS: set()}
    elif (gguf := gguf_file(path, spec)) is not None:
        return _of_gguf(gguf, spec)
    else:
        files = weight_files(path, spec, chosen)
    tensors: dict[str, StoredTensor] = {}
    for file, promised in files.items():
        inside = {each.name: each for each in _of_safetensors(file, spec)}
        if absent := sorted(promised - inside.keys()):
            raise BadInput(f"{spec}: {file.name} lacks {listed(absent)}, which the index names")
        tensors |= inside
    return Stored(tensors)


def in_folder(folder: Path, spec: str) -> Iterator[tuple[StoredTensor, str]]:
    """Every tensor of every file of weights in a model's folder, whether loading reads it or not.

    With each, the file in which an index looks for it, where that is another one; else "".
    Raises `BadInput` for a damaged file.
    """
    index = folder / INDEX
    assigned = weight_map(index, spec) if index.is_file() else {}
    files = {path for path in folder.glob(f"*{ENDING}") if SHARD.fullmatch(path.name)}
    for path in sorted(files | {folder / name for name in assigned.values()}):
        for tensor in _of_safetensors(path, spec):
            where = assigned.get(tensor.name, path.name)
            yield tensor, "" if where == path.name else where


def _of_safetensors(path: Path, spec: str) -> Iterator[StoredTensor]:
    if not path.is_file():
        raise BadInput(f"{spec}: there is no {path.name} in it")
    # By numpy, as torch's way sets memory aside for the whole file.
    with _errors_of(path, spec), safe_open(path, framework="np") as file:
        for name in sorted(file.keys()):
            part = file.get_slice(name)
            dtype = DTYPES.get(part.get_dtype())
            yield StoredTensor(
                name, tuple(part.get_shape()), dtype, path, partial(_read, path, name)
            )


def _read(path: Path, name: str) -> Tensor:
    with safe_open(path, framework="pt") as file:
        return file.get_tensor(name)


@contextmanager
def gguf_read_once(spec: str) -> Iterator[None]:
    """While a GGUF file is loaded, it has one reader.

    A reader parses the vocabulary (150 000 tokens: 5 seconds), and transformers opens one for the
    configuration, the tokenizer and the weights each.
    """
    if not gguf_file(Path(os.path.expanduser(spec)), spec):
        yield
        return
    try:
        import gguf
    except ImportError:  # whoever needs it says so
        yield
        return
    reader: Any = gguf.GGUFReader
    kept = cache(reader)
    gguf.GGUFReader = lambda path, *mode: kept(os.fspath(path), *mode)  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        gguf.GGUFReader = reader  # type: ignore[misc]


def _of_gguf(path: Path, spec: str) -> Stored:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise BadInput(f"{spec}: is of GGUF; install gguf (assay-lm[quantised])") from error
    if not path.is_file():
        raise BadInput(f"{spec}: {path.name} is not a regular file")
    if PART.search(path.name):
        raise BadInput(f"{spec}: {path.name} is one file of several; join them first")
    from assay.harness.results.quiet import quiet

    with _errors_of(path, spec), quiet():
        reader = GGUFReader(path)
    tensors: dict[str, StoredTensor] = {}
    for each in reader.tensors:
        dtype = DTYPES.get(each.tensor_type.name, "float32")
        shape = tuple(reversed(each.shape.tolist()))
        read = partial(_dequantised, each, dtype)
        tensors[each.name] = StoredTensor(each.name, shape, dtype, path, read)
    return Stored(tensors, "tokenizer.ggml.tokens" in reader.fields)


def _dequantised(tensor: Any, dtype: str) -> Tensor:
    import torch
    from gguf.quants import dequantize

    packed = tensor.data.dtype == "uint8"
    numbers = dequantize(tensor.data, tensor.tensor_type) if packed else tensor.data.copy()
    return torch.from_numpy(numbers).to(getattr(torch, dtype))


@contextmanager
def _errors_of(path: Path, spec: str) -> Iterator[None]:
    """Turn an error of a library about a file into `BadInput`."""
    try:
        yield
    except (BadInput, MemoryError):
        raise
    except (PermissionError, NotImplementedError) as error:  # the latter for types of GGUF
        raise BadInput(f"{spec}: {path.name} cannot be read ({brief(error)})") from error
    except Exception as error:  # whatever a reader raises for damaged bytes
        why = pointer(path) or brief(error, 100)
        raise BadInput(
            f"{spec}: {path.name} is truncated or damaged ({why}); copy or download it again"
        ) from error
