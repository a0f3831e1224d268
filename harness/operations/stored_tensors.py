"""Compares a loaded model with the files that it was loaded from, tensor by tensor.

The model is saved again: `save_pretrained` undoes the renaming, fusing and splitting that loading
did, so that what it writes has the names and shapes of the files.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from assay.harness.models.capabilities import releases
from assay.harness.models.loading import scales
from assay.harness.models.loading.folders import ADAPTER_WEIGHTS, ENDING
from assay.harness.models.loading.tensors import StoredTensor, in_folder, inspect
from assay.harness.models.reference.tolerances import bit_equal
from assay.harness.models.subject import Subject
from assay.harness.operations import own_adapters, variants
from assay.harness.results.errors import Missing
from assay.harness.results.quiet import quiet

WRAPPED = ".base_layer."
"""A part of the names of weights to which an adapter adds, which files need not have."""

SHOWN = 3
"""How many tensors a message names."""


@dataclass(frozen=True)
class Unequal:
    """A tensor of the files that the model does not hold, by which ``share`` of its numbers."""

    name: str
    share: float
    why: str

    def __str__(self) -> str:
        return f"{self.name} {self.why}"


@dataclass
class Comparison:
    """The ``unequal`` tensors, how many are ``equal``, and the ``unused`` ones of the files."""

    unequal: list[Unequal] = field(default_factory=list)
    equal: int = 0
    unused: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The largest share of a tensor's numbers that differ: 0 to 1."""
        return max((each.share for each in self.unequal), default=0.0)

    @property
    def details(self) -> dict[str, Any]:
        """How many tensors are equal, and the names of those that the model does not use."""
        unused = {"tensors that the model does not use": self.unused} if self.unused else {}
        return {"tensors of the files that are equal": self.equal} | unused

    @property
    def where(self) -> str:
        """The first unequal tensors, and why."""
        more = len(self.unequal) - SHOWN
        named = "; ".join(str(each) for each in self.unequal[:SHOWN])
        return f"{named}; and {more} more tensors" if more > 0 else named


def compared(subject: Subject, saved: str) -> Comparison:
    """The tensors of the folder that the subject was loaded from, and those of ``saved``, where it
    was saved again.

    Bits are compared in the dtype that the model has.  A parameter that is in no file is unequal,
    unless it is tied to one that is, or has the bits of a tensor of another name.  A square matrix
    that loading transposes by its shape alone is to be transposed if another one of its module is.
    A table of the input that is in no file is to be the one that is.
    """
    assert subject.folder is not None
    result, model = Comparison(), subject.model
    by_shape = tuple(releases.transposed_by_shape(model))
    square: list[tuple[StoredTensor, StoredTensor]] = []
    transposed: dict[str, str] = {}  # by module
    own = dict(inspect(Path(saved), subject.name).tensors)
    left, unnamed = dict(own), []
    aliases, files = _aliases(model), set[str]()
    for stored, assigned in scales.dequantised(in_folder(subject.folder, subject.name)):
        files.add(stored.name)
        names = (stored.name, *aliases.get(stored.name, ()))
        loaded = next((own[name] for name in names if name in own), None)
        if loaded is None:
            unnamed.append(stored)
            continue
        left.pop(loaded.name, None)
        if why := _difference(stored.read(), loaded.read()):
            if assigned:
                why += f", and the index looks for it in {assigned}"
            share = bit_equal(*_alike(stored.read(), loaded.read()))
            result.unequal.append(Unequal(stored.name, share, f"in {stored.path.name} {why}"))
            continue
        result.equal += 1
        if stored.shape != loaded.shape:
            transposed[_module(stored.name)] = stored.name
        elif stored.shape[-2:-1] == stored.shape[-1:] and loaded.name.endswith(by_shape):
            square.append((stored, loaded))
    for stored, loaded in square:
        if (other := transposed.get(_module(stored.name))) is None:
            continue
        share = bit_equal(*_alike(stored.read().mT, loaded.read()))
        if share:
            why = f"in {stored.path.name} is not transposed while it is loaded, as {other} is"
            result.unequal.append(Unequal(stored.name, share, why))
            result.equal -= 1
    _by_content(left, unnamed, model, result)
    result.unequal += _unlike_tables(model, files)
    return result


def _unlike_tables(model: nn.Module, files: set[str]) -> Iterator[Unequal]:
    """The tables of the input that are in no file, tied to another weight than the table that is.

    An encoder whose table is tied to the head is none that any file describes.
    """
    tables = {
        f"{name}.weight": module.weight
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, nn.Embedding)
    }
    stored = {name: table for name, table in tables.items() if name in files}
    for name, table in tables.items():
        others = [o for o in stored if o.rpartition(".")[0].endswith(_last(name))]
        if name in files or not others or any(stored[o].shape != table.shape for o in others):
            continue
        own = {
            each
            for each, weight in model.named_parameters(remove_duplicate=False)
            if weight is table
        }
        share = min(bit_equal(stored[other], table) for other in others)
        if share and own & files:
            tied = min(own & files)
            yield Unequal(name, share, f"is in no file, and is {tied} in place of {others[0]}")


def _last(name: str) -> str:
    """The last part of the name of a weight's module."""
    return f".{name.split('.')[-2]}"


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def of_gguf(subject: Subject) -> dict[str, Tensor]:
    """The tensors of the GGUF file that the subject was loaded from, unpacked (gguf), by the names
    and in the layout and dtypes of the model's own, as transformers maps them.

    Raises `Missing` where memory does not hold them beside the model.
    """
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    if not variants.fits_twice(subject):
        raise Missing("memory does not hold another model")
    with redirect_stderr(io.StringIO()), quiet():  # a bar
        content: dict[str, Any] = load_gguf_checkpoint(
            str(subject.folder), return_tensors=True, model_to_load=subject.model
        )
    return own_adapters.in_dtypes_of(subject.model.state_dict(), content["tensors"])


def compared_gguf(subject: Subject, stored: dict[str, Tensor]) -> Comparison:
    """The ``stored`` tensors of a GGUF file, and the model's; a tied one may have either name."""
    model, tied = subject.model, _aliases(subject.model)
    own = dict(model.named_parameters())
    left = {n: own[n] for n in own if stored.keys().isdisjoint([n, *tied.get(n, ())])}
    assert subject.folder is not None
    return _compared(stored, left, model.state_dict(keep_vars=True), subject.folder.name)


def compared_adapter(subject: Subject, stored: dict[str, Tensor]) -> Comparison:
    """The ``stored`` tensors of an adapter, and those of the model (`operations.own_adapters`).

    A file may also hold weights of the base, as those of an embedding that has grown.
    """
    base = {
        f"{own_adapters.PREFIX}{name}".replace(WRAPPED, "."): tensor
        for name, tensor in subject.model.state_dict().items()
    }
    others = {name: base.get(name.replace(WRAPPED, ".")) for name in stored}
    return _compared(stored, own_adapters.tensors(subject), others, ADAPTER_WEIGHTS)


def _compared(
    stored: dict[str, Tensor], own: Mapping[str, Tensor], others: Mapping[str, Any], file: str
) -> Comparison:
    """Each of ``own`` must be ``stored`` in the file; ``others`` may be."""
    result, left = Comparison(), dict(own)
    for name, tensor in stored.items():
        loaded = left.pop(name, others.get(name))
        if loaded is None:
            result.unused.append(name)
        elif why := _difference(tensor, loaded := loaded.detach().cpu()):
            share = bit_equal(*_alike(tensor, loaded))
            result.unequal.append(Unequal(name, share, f"in {file} {why}"))
        else:
            result.equal += 1
    result.unequal += [Unequal(name, 1.0, "is in no file") for name in sorted(left)]
    return result


def _difference(ours: Tensor, theirs: Tensor) -> str:
    """How a tensor of a file differs from the loaded one, in words; empty if it does not.

    Bits are compared in the dtype that the model has.
    """
    if ours.shape != theirs.shape:
        if (
            ours.ndim > 1
            and ours.mT.shape == theirs.shape
            and not bit_equal(ours.mT.to(theirs.dtype), theirs)
        ):
            return ""  # an older layout, which loading turns
        return f"has the shape {list(ours.shape)}, and the model {list(theirs.shape)}"
    if not bit_equal(ours.to(theirs.dtype), theirs):
        return ""
    rows = _rows(ours.to(theirs.dtype), theirs)
    return f"differs from what is loaded{rows}"


def _alike(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the dtype of the other; of unlike shapes two numbers that differ."""
    if one.shape != other.shape:
        return one.new_zeros(1), one.new_ones(1)
    return one.to(other.dtype), other


def _rows(one: Tensor, other: Tensor) -> str:
    """Which rows of two matrices differ, in words, where it is not all of them."""
    if one.ndim < 2:
        return ""
    rows = (one != other).flatten(1).any(1).nonzero().flatten().tolist()
    if not rows or len(rows) == len(one):
        return ""
    return f" in {len(rows)} of {len(one)} rows, first in row {rows[0]}"


def _by_content(
    left: dict[str, StoredTensor],
    unnamed: list[StoredTensor],
    model: nn.Module,
    result: Comparison,
) -> None:
    """Match what has no counterpart of its name by its numbers; what is left is in no file.

    A checkpoint of another library, or of an older version, may have names of its own.
    """
    buffers = {name for name, _ in model.named_buffers()}
    for name, loaded in left.items():
        if name in buffers:
            continue  # recomputed
        fits = [each for each in unnamed if each.shape == loaded.shape]
        match = next((e for e in fits if not _difference(e.read(), loaded.read())), None)
        if match is None:
            result.unequal.append(Unequal(name, 1.0, "is in no file"))
        else:
            unnamed.remove(match)
            result.equal += 1
    result.unused += [each.name for each in unnamed]


def zero_a_row(folder: str) -> None:
    """Set the last row of the largest weight of a file to zero, of those rows that are not."""
    file = sorted(Path(folder).glob(f"*{ENDING}"))[0]
    save_file(with_a_row_of_zeros(load_file(file)), file, metadata={"format": "pt"})


def with_a_row_of_zeros(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with zeros in the last row that has other numbers, of the largest weight."""
    # Weights of zeros, as of positions that nothing has trained, would stay what they are.
    name = max(stored, key=lambda name: (int(stored[name].count_nonzero()), name))
    largest = stored[name].clone()
    rows = largest.flatten(1) if largest.ndim > 1 else largest[:, None]
    rows[rows.any(1).nonzero().flatten()[-1:]] = 0
    return stored | {name: largest}


def _aliases(model: nn.Module) -> dict[str, list[str]]:
    """The other names of each parameter that has several, because it is tied."""
    groups: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        groups.setdefault(weight.data_ptr(), []).append(name)
    return {
        name: [each for each in names if each != name]
        for names in groups.values()
        if len(names) > 1
        for name in names
    }
