"""Compares config.json with the model that was loaded: fields that it holds otherwise, that no
module of it reads, and that its type does not have.

What the library does by design makes no difference (`harness.models.loading.by_design`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig

from assay.harness.models.loading import by_design, reads
from assay.harness.models.machine.shortage import ENDS
from assay.harness.models.subject import Subject
from assay.harness.models.subject.configuration import WINDOWS
from assay.harness.models.subject.memo import memo

ABSENT = object()
"""Stands for a field that a configuration does not have."""

BY_LAYER = object()
"""Stands for a field that each layer has its own value of."""

ROTATION = ("rope_parameters", "rope_scaling")
"""The fields with the parameters of rotary positions: now, and before transformers 5."""

TIE = "tie_word_embeddings"

IN_ROTATION = ("rope_theta", "partial_rotary_factor")
"""Fields that move into the parameters of rotary positions."""

LONGEST = 80
"""Characters of a value that a line shows."""


@dataclass(frozen=True)
class Difference:
    """A field of config.json, what the file says of it, and what the model has in its place.

    ``breaks``: the type has the field, and the model holds another value, or has no layer with
    the window that the file states.
    """

    field: str
    says: Any
    but: str
    breaks: bool

    def __str__(self) -> str:
        return f"config.json says {self.field} {shown(self.says)}; {self.but}"


def shown(value: Any) -> str:
    """A value as JSON has it, shortened."""
    text = json.dumps(value, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


@memo
def differences_of(subject: Subject) -> list[Difference]:
    """Those between the subject and the config.json of the folder that it was loaded from."""
    folder = folder_of(subject)
    return [] if folder is None else differences(content(folder), subject)


def folder_of(subject: Subject) -> Path | None:
    """The folder with the config.json by which the subject was loaded: not that of an adapter."""
    folder = subject.folder
    return folder if folder is not None and (folder / "config.json").is_file() else None


def content(folder: Path | str) -> dict[str, Any]:
    """The content of a folder's config.json, or of the file that it names for this version."""
    raw, _ = PretrainedConfig.get_config_dict(folder, local_files_only=True)
    return dict(raw)


def lacks(config: Any, name: str) -> bool:
    """Whether the type of ``config`` has the field, and it is None."""
    return _Field(name, name, None, config, {}).is_declared and _held(config, name) is None


def change_numbers(raw: dict[str, Any], config: Any) -> None:
    """Set the integers in ``raw`` to others than ``config`` has, but for those that code of the
    type's own reckons: of every part, as the model may not have all of them.
    """
    for each in _compared(raw, config, ""):
        holds, config_class = _held(each.config, each.name), type(each.config)
        is_held = type(each.says) is int and each.is_declared and each.says == holds
        if is_held and not reads.adjusts(config_class, each.own_name):
            each.raw[each.name] += 1


def differences(raw: dict[str, Any], subject: Subject) -> list[Difference]:
    """Those between the subject and ``raw``, the content of a config.json; what breaks the law
    first.
    """
    config: Any = subject.model.config
    read = reads.fields_read(subject)
    compared = list(_compared(raw, config, ""))
    if read is not None:  # a part that the model does not have reads nothing of its own
        used = {config_class for config_class, _ in read}
        compared = [each for each in compared if type(each.config) in used]
    different = [*_unlike(compared), *_untied(raw, subject.model)]
    if read is not None:
        named = {each.field for each in different}
        rest = (each for each in compared if each.path not in named and _is_unusual(each))
        different += _unread(rest, subject.model, read)
    return sorted(different, key=lambda each: not each.breaks)


@dataclass(frozen=True)
class _Field:
    """A field of ``raw``, a file or a part of it: its ``path`` and ``name``, and the configuration
    that should hold it.
    """

    path: str
    name: str
    says: Any
    config: Any
    raw: dict[str, Any]

    @property
    def own_name(self) -> str:
        """The name that the configuration's class has for it."""
        rotates = self.name in (*ROTATION, *IN_ROTATION) and hasattr(self.config, ROTATION[0])
        name = ROTATION[0] if rotates else self.name
        return reads.renamed(type(self.config), name)

    @property
    def is_declared(self) -> bool:
        """Whether the type has it."""
        return self.own_name in reads.declared(type(self.config))


def _compared(raw: dict[str, Any], config: Any, path: str) -> Iterator[_Field]:
    """The fields of ``raw`` of which something is asked, and of its parts."""
    for name, says in raw.items():
        if says is None or by_design.is_outside(name, raw):
            continue
        part = _held(config, name)
        if isinstance(part, PretrainedConfig) and isinstance(says, dict):
            yield from _compared(says, part, f"{path}{name}.")
        else:
            yield _Field(path + name, name, says, config, raw)


def _held(config: Any, name: str) -> Any:
    try:
        return getattr(config, name, ABSENT)
    except ENDS:  # an error of the library's own: the layers' values differ
        return BY_LAYER


def _unlike(compared: list[_Field]) -> Iterator[Difference]:
    """Those that the configuration holds otherwise, and does not write so either: some types write
    their files otherwise than they compute.
    """
    for each in compared:
        holds, config_class = _held(each.config, each.name), type(each.config)
        rotation = getattr(each.config, ROTATION[0], None)
        ignored = each.name in ROTATION and _ignores(rotation)
        if (is_same(each.says, holds) or holds is BY_LAYER) and not ignored:
            continue
        if each.name in (*ROTATION, *IN_ROTATION) and rotation:
            if not _is_rotation(each.name, each.says, rotation):
                but = f"the model has {ROTATION[0]} {shown(rotation)}"
                yield Difference(each.path, each.says, but, True)
        elif holds is ABSENT:
            if not reads.converts(config_class, each.name):
                yield Difference(each.path, each.says, "the model has none", each.is_declared)
        elif not is_same(each.says, each.config.to_dict().get(each.name)):
            none = holds is None or holds == []
            lost = none and each.name in WINDOWS
            breaks = each.is_declared and (lost or not reads.adjusts(config_class, each.own_name))
            if not by_design.is_halved(each.name, each.says, holds, each.raw):
                but = "none" if none else shown(holds)
                yield Difference(each.path, each.says, f"the model has {but}", breaks)


def is_same(says: Any, holds: Any) -> bool:
    """Whether a value of a file is the one that a configuration holds.

    Defaults may be added to a dictionary, and kinds of layers have other names than before.
    """
    if isinstance(says, dict) and hasattr(holds, "to_dict"):
        holds = holds.to_dict()
    if isinstance(says, dict) and isinstance(holds, dict):
        holds = {str(key): value for key, value in holds.items()}
        return all(
            value is None or (key in holds and is_same(value, holds[key]))
            for key, value in says.items()
        )
    if isinstance(says, list) and isinstance(holds, list | tuple):
        if len(says) != len(holds):
            return False
        if all(isinstance(each, str) for each in (*says, *holds)):
            return len(set(zip(says, holds, strict=True))) == len(set(says)) == len(set(holds))
        return all(map(is_same, says, holds))
    if isinstance(holds, torch.dtype):
        return str(says).removeprefix("torch.") == str(holds).removeprefix("torch.")
    return bool(says == holds)


def _is_rotation(name: str, says: Any, rotation: dict[str, Any]) -> bool:
    """Whether parameters of rotary positions have what a field says: those of a kind of layers,
    where each has its own.
    """
    says = dict(says) if name in ROTATION else {name: says}
    if kind := says.pop("type", None):
        says.setdefault("rope_type", kind)
    parts = [each for each in rotation.values() if isinstance(each, dict)]
    renamed = {**says, "rope_type": by_design.RENAMED_ROTATIONS.get(says.get("rope_type", ""))}
    return not _ignores(rotation) and any(
        is_same(each, held) for each in (says, renamed) for held in (rotation, *parts)
    )


def _ignores(rotation: Any) -> bool:
    """Whether there is a factor, and no kind of rotation that has one."""
    default = isinstance(rotation, dict) and rotation.get("rope_type") == "default"
    return default and rotation.get("factor", 1.0) != 1.0


def _untied(raw: dict[str, Any], model: Any) -> Iterator[Difference]:
    """The tie of the head, where the file asks for it, the class has it, and the head has numbers
    of its own.
    """
    head = getattr(model.get_output_embeddings(), "weight", None)
    table = getattr(model.get_input_embeddings(), "weight", None)
    if raw.get(TIE) is not True or head is None or table is None:
        return
    named = [
        name
        for name, weight in model.named_parameters(remove_duplicate=False)
        if weight.data_ptr() == head.data_ptr()
    ]
    ties = any(re.search(key, name) for key in model._tied_weights_keys or () for name in named)
    if ties and len(named) == 1 and not head.is_meta and not torch.equal(head, table):
        yield Difference(TIE, True, "the model's head is not its embedding", True)


def _unread(
    unusual: Iterable[_Field], model: nn.Module, read: set[reads.Read]
) -> Iterator[Difference]:
    """Those fields that no module reads.

    A field that a type has is left out where code of another class, or of other inputs, reads it.
    """
    for each in unusual:
        config_class = type(each.config)
        if (config_class, each.own_name) in read:
            continue
        if each.name in WINDOWS and reads.could_build_with(model, each.own_name):
            but = "no layer of the model has a window"
            yield Difference(each.path, each.says, but, each.is_declared)
        elif (
            each.name not in (*ROTATION, *IN_ROTATION) and reads.converts(config_class, each.name)
        ) or reads.mentions(model, each.own_name):
            continue
        elif each.is_declared:
            yield Difference(each.path, each.says, "no module of the model reads it", False)
        else:
            kind = each.config.model_type
            yield Difference(each.path, each.says, f"{kind} has no such field", False)


def _is_unusual(each: _Field) -> bool:
    """Whether it is not the type's default, or not of the type, and evaluation is to read it."""
    if each.name in WINDOWS or not each.is_declared:
        return bool(each.says) and not by_design.may_be_unread(each.name)
    if by_design.may_be_unread(each.name) or by_design.is_size(each.name):
        return False
    return not is_same(each.says, reads.declared(type(each.config))[each.own_name])
