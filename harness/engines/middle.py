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


def rounded(states: Tensor, kind: str) -> Tensor:
    """``states`` [batch, heads, n, width] as a cache of the type ``kind`` returns them.

    Types of 8 bits round blocks of `BLOCK` numbers to 127 steps of the largest, those of fewer to
    8 steps, as llama.cpp's q8_0 and q4_0 do.
    """
    kind = bounds.kind(kind)
    if kind in DTYPES:
        return states.to(DTYPES[kind]).to(states.dtype)
    width = states.shape[-1]
    blocks = states.float().unflatten(-1, (-1, BLOCK if width % BLOCK == 0 else width))
    largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    steps = largest.abs() / 127 if kind == "8 bits" else largest / -8
    steps = torch.where(steps == 0, 1.0, steps).half().float()
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
