"""Generation without what a model's own settings of it ask for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import GenerationConfig


def defaults(model: Any) -> Any:
    """The library's settings of generation, with the model's special tokens.

    What only the model's own code reads is kept as well.
    """
    settings = copy.deepcopy(model.generation_config)
    library = GenerationConfig()  # type: ignore[no-untyped-call]
    for name, value in vars(library).items():
        if not name.endswith("_token_id") or name.startswith("forced"):
            setattr(settings, name, value)
    return settings


@contextmanager
def library_settings(model: Any) -> Iterator[None]:
    """Generation by the library's settings in place of the model's, for the length of a block.

    A generation_config.json may ask for beams, penalties, drafts, guidance or several answers.
    What a claim asks for would be something else then, and some settings exclude others: drafts
    need a cache.
    """
    own, model.generation_config = model.generation_config, defaults(model)
    try:
        yield
    finally:
        model.generation_config = own
