"""Loads a saved model, or makes one, in memory that holds no numbers."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from assay.harness.models.loading.checkpoints import class_to_load
from assay.harness.models.reference.modified import of_same_code
from assay.harness.models.subject import Subject, compat
from assay.harness.operations import variants
from assay.harness.operations.differences import Share, largest, of_tensors
from assay.harness.results.errors import Missing

REPORTED = ("missing_keys", "unexpected_keys", "mismatched_keys")
"""What loading reports of keys that it did not find, did not use, or found in another shape."""


@dataclass(frozen=True)
class Loaded:
    """A loaded model, and the names that loading reported, by `REPORTED`."""

    subject: Subject
    reported: dict[str, list[str]]


def loaded(subject: Subject, folder: str) -> Loaded:
    """The model in ``folder``, loaded as users load it, where new memory is filled with NaN,
    so that what loading neither reads nor computes shows.

    Equal weights take the memory of the subject's where they should (`variants.shares_weights`).
    """
    model_class = class_to_load(subject.model, folder)
    with filled_with_nan():
        model, info = model_class.from_pretrained(
            folder, output_loading_info=True, **compat.in_dtype(subject.dtype)
        )
    if variants.shares_weights(subject):
        variants.share_equal_weights(subject.model, model)
    model.to(subject.device).eval().requires_grad_(False)
    other = of_same_code(subject, f"{subject.name}, loaded into NaN", model)
    reported = {kind: sorted(map(str, info.get(kind, ()))) for kind in REPORTED}
    return Loaded(other, reported)


@dataclass(frozen=True)
class Made:
    """The ``buffers`` of a new model by their names, and the share of its ``weights`` of which no
    number was set: the largest of any.
    """

    buffers: dict[str, Tensor]
    weights: Share

    def unlike(self, other: Made) -> Share:
        """The largest share of a buffer's elements that differ from ``other``'s; 1 for another
        set of buffers.
        """
        return of_tensors(self.buffers, other.buffers)


def require_initialised_buffers() -> None:
    """Raise `Missing` where the library's `init_weights` computes no buffers (before 5.0)."""
    if find_spec("transformers.initialization") is None:
        raise Missing("in this version of transformers init_weights leaves buffers alone")


def made(subject: Subject) -> Made:
    """A new model of the subject's class and configuration, in float32 on the CPU."""
    with torch.random.fork_rng(devices=[]):
        return _made(_new(subject), compat.is_of_the_library(subject.model))


def made_without_numbers(subject: Subject, initialised: bool = True) -> Made:
    """The same model made on the meta device, given memory of NaN, and initialised or not."""
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):
            model = _new(subject)
        of_same_code(subject, f"{subject.name}, made without numbers", model)
        with filled_with_nan():
            model.to_empty(device="cpu")
        if initialised:
            model.init_weights()
        return _made(model, compat.is_of_the_library(subject.model))


def _new(subject: Subject) -> Any:
    if not variants.fits_twice(subject):
        raise Missing("memory does not hold another model")
    own_class: Any = type(subject.model)
    return own_class(copy.deepcopy(subject.model.config))


def _made(model: Any, of_the_library: bool) -> Made:
    """The buffers and weights of ``model``; of another class than the library's, only those
    buffers that no checkpoint stores: it may leave the rest to loading.
    """
    buffers = dict(model.named_buffers())
    if not of_the_library:
        stored = model.state_dict().keys()
        buffers = {name: each for name, each in buffers.items() if name not in stored}
        if not buffers:
            raise Missing("everything in a model of this class is loaded from its checkpoint")
        return Made(buffers, Share(0.0))
    unset = {name: each.isnan().float().mean().item() for name, each in model.named_parameters()}
    return Made(buffers, largest(unset))


@contextmanager
def filled_with_nan() -> Iterator[None]:
    """Fill new memory with NaN, of integers with the largest, within a block
    (`torch.utils.deterministic.fill_uninitialized_memory`).
    """
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = torch.utils.deterministic
    fill = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    settings.fill_uninitialized_memory = True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*deterministic")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        settings.fill_uninitialized_memory = fill


def rename_a_weight(subject: Subject, folder: str) -> str:
    """Store the largest weight of a file under another name; returns the old one."""
    file = sorted(Path(folder).glob("*.safetensors"))[0]
    tensors = load_file(file)
    weights = {name for name, _ in subject.model.named_parameters()}
    stored = tensors.keys() & weights or tensors.keys()  # some are stored under names of their own
    # A weight of zeros could be initialised to what it was.
    name = max(stored, key=lambda each: (int(tensors[each].count_nonzero()), each))
    tensors[f"{name}_"] = tensors.pop(name)
    save_file(tensors, file, metadata={"format": "pt"})
    for index in Path(folder).glob("*.index.json"):
        table = json.loads(index.read_text())
        table["weight_map"][f"{name}_"] = table["weight_map"].pop(name)
        index.write_text(json.dumps(table))
    return name
