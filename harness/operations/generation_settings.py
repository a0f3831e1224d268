"""The settings with which claims generate: the library's, with the model's special tokens."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from transformers import GenerationConfig

from assay.harness.models.subject import roles

MOST_ENDS = 8
"""End tokens that beam search allows for, in any vocabulary: more are reduced to the first one."""


def default_settings(model: Any) -> Any:
    """The library's generation settings, with the model's special tokens.

    Keeps settings that only the model's own code reads.
    """
    settings = copy.deepcopy(model.generation_config)
    library = GenerationConfig()
    for name, value in vars(library).items():
        if not name.endswith("_token_id") or name.startswith("forced"):
            setattr(settings, name, value)
    ends = settings.eos_token_id
    if isinstance(ends, list) and len(ends) > MOST_ENDS:
        settings.eos_token_id = ends[0]
    return settings


@contextmanager
def library_settings(model: Any) -> Iterator[None]:
    """Generate with the library's settings in place of the model's, within a block.

    A generation_config.json may set beams, penalties, drafts, guidance or several answers: a claim
    would then measure something else, and some settings exclude others.
    """
    own, model.generation_config = model.generation_config, default_settings(model)
    try:
        yield
    finally:
        model.generation_config = own


def for_generate(
    mask: Tensor | None = None,
    keep: bool | None = None,
    cache: tuple[str | None, Any] = (None, None),
) -> dict[str, Any]:
    """Arguments of transformers' ``generate``: a padding ``mask`` [batch, n] of the prompt,
    whether to ``keep`` a cache, and the name and value of a ``cache`` to continue from.
    """
    arguments: dict[str, Any] = {}
    if mask is not None:
        arguments[roles.SPELLINGS[roles.Role.MASK][0]] = mask  # with an encoder, its own
    if keep is not None:
        arguments[roles.SPELLINGS[roles.Role.KEEP][0]] = keep
    name, filled = cache
    if filled is not None:
        arguments[str(name)] = filled
    return arguments
