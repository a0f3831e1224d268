"""The adapter that a model has in it already: its tensors, its files, and the model without it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from assay.harness.models.capabilities import Missing
from assay.harness.models.loading.folders import ADAPTER_WEIGHTS
from assay.harness.models.loading.tensors import inspect
from assay.harness.models.subject import Subject
from assay.harness.operations import adapters
from assay.harness.results.quiet import quiet

PREFIX = "base_model.model."
"""What names begin with in an adapter's file."""

OWN, OTHER, OTHER_DORA = "its own loader", "the other loader", "the other loader, DoRA"
"""By what an adapter is loaded; only one library loads DoRA's magnitudes."""


def tensors(subject: Subject) -> dict[str, Tensor]:
    """The adapter's tensors as the model has them, by the names that they have in a file."""
    import peft

    name = _name(subject)
    with quiet():
        state = peft.get_peft_model_state_dict(
            subject.model, adapter_name=name, save_embedding_layers=False
        )
    return {f"{PREFIX}{key}": tensor.detach() for key, tensor in state.items()}


def stored(subject: Subject) -> dict[str, Tensor]:
    """The tensors of the adapter's file, by the names that this version's layers give them: an
    older one's layers may have been others, as for experts.  They are in the model's dtypes.
    """
    assert subject.folder is not None
    found = inspect(subject.folder, subject.name).tensors
    read = {name: tensor.read() for name, tensor in found.items()}
    try:
        from peft.utils import transformers_weight_conversion as conversion
    except ImportError:  # before transformers 5
        return in_dtypes_of(tensors(subject), read)
    model: Any = subject.model
    name = _name(subject)
    renamed = conversion.convert_peft_adapter_state_dict_for_transformers(
        model, model.peft_config[name], read, name
    )
    return in_dtypes_of(tensors(subject), renamed)


def in_dtypes_of(own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The ``stored`` tensors, each in the dtype of the one of its name in ``own``, if any."""
    return {name: each.to(own.get(name, each).dtype) for name, each in stored.items()}


@contextmanager
def files(subject: Subject) -> Iterator[tuple[Subject, str]]:
    """A model, and the folder of its adapter's files, within a block.

    It is the subject, with the files that it was loaded from.  A subject that was not is copied
    and its adapter changed, as numbers that loading leaves alone could be right by chance.
    """
    if subject.folder is not None:
        yield subject, str(subject.folder)
        return
    name = _name(subject)
    own = adapters.weights(subject).values()
    model = adapters.in_same_memory(subject, but=own)
    moved = adapters.like(subject, "its adapter moved", model)
    adapters.move(moved, adapters.STRENGTH, name)
    with tempfile.TemporaryDirectory() as folder:
        content = {key: tensor.contiguous() for key, tensor in tensors(moved).items()}
        save_file(content, Path(folder) / ADAPTER_WEIGHTS, metadata={"format": "pt"})
        with quiet():
            moved.model.peft_config[name].save_pretrained(folder)
        yield moved, folder


def loaded(subject: Subject, folder: str, by: str) -> tuple[Subject, str]:
    """The subject with the adapter in ``folder``, and the name of the library that loaded it.

    Raises `Missing` where ``by`` is about DoRA and the adapter is none, or the reverse.
    """
    model: Any = subject.model
    name = _name(subject)
    own, other = "peft", "transformers"
    if getattr(model, "_hf_peft_config_loaded", False):
        own, other = other, own
    if by != OWN and model.peft_config[name].use_dora != (by == OTHER_DORA):
        raise Missing(f"the adapter has {'no ' if by == OTHER_DORA else ''}magnitudes (DoRA)")
    loader = own if by == OWN else other
    return adapters.loaded(subject, folder, loader, base(subject).model, name), loader


def base(subject: Subject) -> Subject:
    """The model without its adapter, in the same memory."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    model: Any = adapters.in_same_memory(subject)
    _replace(model, (BaseTunerLayer, AuxiliaryTrainingWrapper))
    del model.peft_config
    model._hf_peft_config_loaded = False
    plain: Subject = adapters.like(subject, "without its adapter", model)
    return plain


def _replace(module: nn.Module, kinds: tuple[Any, ...]) -> None:
    """Put what each module of these ``kinds`` wraps in its place."""
    for name, child in list(module.named_children()):
        if isinstance(child, kinds):
            original = getattr(child, "original_module", None)
            setattr(module, name, child.get_base_layer() if original is None else original)
        else:
            _replace(child, kinds)


def _name(subject: Subject) -> str:
    """The name of the only adapter."""
    model: Any = subject.model
    return str(next(iter(model.peft_config)))
