"""The middle column of a comparison: an engine's weights and types, computed by transformers.

What separates it from float64 is rounding; what separates the engine from it, the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from assay.harness.engines import bounds
from assay.harness.engines.interface import Ids, Scores
from assay.harness.engines.scores import Rows, rows_of
from assay.harness.engines.subject import EngineSubject
from assay.harness.models.machine.devices import DTYPES
from assay.harness.models.subject import Subject

BLOCK = 32
"""Numbers of a block of llama.cpp's types, which share a scale."""

BLOCKS = {"int8": 0, "q8_k": 256}
"""Those of other types; 0: a row has one scale, as in CTranslate2."""


def rounded(states: Tensor, name: str) -> Tensor:
    """``states`` [..., width] as a cache, an input or a weight of the type ``name`` has them.

    Types of 8 bits have 127 steps up to the largest number: of a row in ``int8``, which is what
    CTranslate2 does, and else of a block, as in llama.cpp's q8_0.  Types of fewer have 8, as its
    q4_0.  A row that is no multiple of a block has blocks of `BLOCK`, or is one.
    """
    kind = bounds.kind(name)
    if kind in DTYPES:
        return states.to(DTYPES[kind]).to(states.dtype)
    width = states.shape[-1]
    sizes = (BLOCKS.get(name, BLOCK) or width, BLOCK, width)
    size = next(each for each in sizes if width % each == 0)
    blocks = states.double().unflatten(-1, (-1, size))
    largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    steps = largest.abs() / 127 if kind == "8 bits" else largest / -8
    steps = steps if name in BLOCKS else steps.half().double()
    steps = torch.where(steps == 0, 1.0, steps)
    low, high = (-127, 127) if kind == "8 bits" else (-8, 7)
    return ((blocks / steps).round().clamp(low, high) * steps).flatten(-2).to(states.dtype)


class RoundedCache(transformers.DynamicCache):
    """A growing cache that rounds what it is given to a type, and returns that."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Round and keep the keys and values of new tokens; all that are kept."""
        keys, values = (rounded(each, self.kind) for each in (key_states, value_states))
        return super().update(keys, values, layer_idx, *args, **kwargs)


@contextmanager
def rounded_inputs(model: Any, kind: str) -> Iterator[None]:
    """``model`` while inputs of its linear layers are rounded to the type ``kind``; '' is none."""

    def round_input(layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (rounded(inputs[0], kind), *inputs[1:])

    layers = [each for each in model.modules() if kind and isinstance(each, nn.Linear)]
    handles = [each.register_forward_pre_hook(round_input) for each in layers]
    try:
        yield
    finally:
        for each in handles:
            each.remove()


def scores(subject: EngineSubject, model: Subject, ids: Ids) -> Rows:
    """The log-probabilities of ``model``, in the engine's types, with the engine's cache."""
    engine = subject.engine
    prompt = torch.tensor([ids], device=model.device)
    with rounded_inputs(model.model, engine.activations):
        if not engine.cache or engine.cache == engine.dtype:
            return bounds.of_model(model, ids, engine)
        output = model(prompt, cache=RoundedCache(engine.cache), keep=True, states=False)
    return rows_of(Scores(output.rows["logits"][0]), engine.vocabulary, model.name)
