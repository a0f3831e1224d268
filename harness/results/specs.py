"""Parses the name of a model, which ``--model`` takes and evidence records."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from assay.harness.results.errors import BadInput
from assay.harness.results.seeds import read_seed

TASKS = ("causal", "masked", "seq2seq", "multimodal")
"""The kinds of language model that a model type may be built as.

A multimodal one also reads images or sound, and gets prompts of text.
"""

VARIANTS = ("linear", "dynamic", "yarn", "longrope", "llama3", "proportional", "partial")
"""Ways to change a tiny model's rotary positions: types of scaling, and a partial rotation."""

WILD = frozenset("*?[")
"""Characters that make a name a pattern."""

SIGN = "+"
"""Separates a model's name from its variants and from the fault injected into it."""

_CODE = re.compile(r"(.+\.py|[A-Za-z_]\w*(\.\w+)+):([A-Za-z_]\w*)")
"""A function in a file or a module, which makes a model."""

_FAULT = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")


class ModelKind(StrEnum):
    """Where a model comes from: the first word of its name, except for a checkpoint's."""

    REFERENCE = "reference"
    UNTRAINED = "untrained"
    TINY = "tiny"
    GEOMETRY = "geometry"
    TOY = "toy"
    CHAT = "chat"
    """A tiny model with a tokenizer and a chat template."""
    ENGINE = "engine"
    """What serves a model: ``engine:NAME:WHAT``."""
    CODE = "code"
    """A function of the user's own that returns a model, in a file or a module."""
    CHECKPOINT = "checkpoint"
    """A folder or a model of the hub."""


OUTSIDE = (ModelKind.CODE, ModelKind.CHECKPOINT)
"""Kinds whose names do not begin with the kind."""


@dataclass(frozen=True)
class ModelSpec:
    """A model by name; ``str`` gives the text that `parse` reads.

    ``name`` is the size of a reference (empty: the default), a model type or a pattern of them, a
    geometry, a folder's path, a hub id, or ``FILE.py:FUNCTION``.  ``task`` is one of `TASKS`, or
    None for the usual one of a model type; ``seed`` and ``fault`` are None where there is none.
    ``variants`` of a tiny model are among `VARIANTS`.
    """

    kind: ModelKind
    name: str = ""
    task: str | None = None
    seed: int | None = None
    fault: str | None = None
    variants: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``reference[:SIZE]``, ``untrained[:SIZE[:SEED]]``, ``tiny:[TASK:]TYPE[:SEED]``
        with any ``+VARIANT``, ``geometry:NAME[:SEED]``, ``toy``, ``chat``, ``FILE.py:FUNCTION``,
        ``PACKAGE.MODULE:FUNCTION``, a path or a hub id, each with ``+FAULT`` or without;
        or ``engine:NAME[:WHAT]``.

        A path that exists has no fault.  Raises `BadInput`; whether there is such a size, type or
        fault is not checked.
        """
        model, sign, fault = text.rpartition(SIGN)
        if not sign or text.startswith(f"{ModelKind.ENGINE}:"):  # which has faults of its own
            return cls._sound(text)
        if text.startswith(f"{ModelKind.TINY}:") and fault in VARIANTS:
            return cls._sound(text)
        spec = cls._sound(model)
        if spec.kind in OUTSIDE and (not _FAULT.fullmatch(fault) or os.path.exists(text)):
            return cls._sound(text)
        return replace(spec, fault=fault)

    @classmethod
    def recorded(cls, text: str) -> Self:
        """Parse a name that a run has recorded, which may be any text."""
        try:
            return cls.parse(text)
        except BadInput:
            return cls(ModelKind.CHECKPOINT, text)

    @classmethod
    def _sound(cls, text: str) -> Self:
        word, colon, rest = text.partition(":")
        if text.endswith(":") and not os.path.exists(text):
            raise BadInput(f"{text}: names nothing after its colon")
        if word == ModelKind.REFERENCE:
            return cls(ModelKind.REFERENCE, rest)
        if word == ModelKind.TINY:
            rest, *variants = rest.split(SIGN)
            return replace(cls._tiny(text, rest.split(":")), variants=tuple(variants))
        if word == ModelKind.ENGINE and colon:
            return cls(ModelKind.ENGINE, rest)
        if word in (ModelKind.UNTRAINED, ModelKind.GEOMETRY):
            name, _, seed = rest.partition(":")
            return cls(ModelKind(word), name, seed=read_seed(seed, text) if seed else None)
        if word in (ModelKind.TOY, ModelKind.CHAT):
            if colon:
                raise BadInput(f"{text}: there is one such subject only, {word}")
            return cls(ModelKind(word))
        if _CODE.fullmatch(text) and not os.path.exists(text):
            return cls(ModelKind.CODE, text)
        return cls(ModelKind.CHECKPOINT, text)

    @classmethod
    def _tiny(cls, text: str, parts: list[str]) -> Self:
        task = parts.pop(0) if parts[0] in TASKS else None
        if not parts:
            raise BadInput(f"{text}: names a kind; {text}:* stands for all of it")
        name, *seeds = parts
        if task is None and seeds and WILD & set(seeds[0]):
            tasks = ", ".join(TASKS)
            raise BadInput(f"{text}: {name!r} is not a kind of model types; choose from {tasks}")
        if len(seeds) > 1:
            raise BadInput(f"{text}: is not tiny:[KIND:]MODEL_TYPE[:SEED]")
        return cls(ModelKind.TINY, name, task, read_seed(seeds[0], text) if seeds else None)

    def __str__(self) -> str:
        first = [] if self.kind in OUTSIDE else [self.kind.value]
        seed = None if self.seed is None else str(self.seed)
        parts = [*first, self.task, self.name or None if seed is None else self.name, seed]
        text = ":".join(part for part in parts if part is not None)
        text = SIGN.join([text, *self.variants])
        return text if self.fault is None else f"{text}{SIGN}{self.fault}"

    @property
    def without_fault(self) -> Self:
        """The unmodified model."""
        return replace(self, fault=None)

    @property
    def path(self) -> str:
        """The checkpoint's path, or its id of the hub; empty for models that Assay makes."""
        return self.name if self.kind is ModelKind.CHECKPOINT else ""

    @property
    def is_pattern(self) -> bool:
        """Whether this names every model type that fits it."""
        return self.kind is ModelKind.TINY and bool(WILD & set(self.name))
