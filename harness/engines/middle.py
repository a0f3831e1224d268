"""The middle column of a comparison: an engine's weights and types, computed by transformers.

What separates it from float64 is rounding; what separates the engine from it, the engine.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import scipy
import torch
from torch import Tensor, nn
from transformers.masking_utils import AttentionMaskInterface
from transformers.pytorch_utils import Conv1D

from assay.harness.engines.interface import Engine, Ids, Scores
from assay.harness.engines.scores import Rows, rows_of
from assay.harness.models.capabilities import releases
from assay.harness.models.machine.devices import DTYPES
from assay.harness.models.subject import Subject, compat
from assay.harness.results.errors import Missing

OTHER_NAMES = {
    **dict.fromkeys(("f32", "fp32", "float"), "float32"),
    **dict.fromkeys(("f16", "fp16", "half"), "float16"),
    "bf16": "bfloat16",
}

BLOCK = 32
"""Numbers of a block of llama.cpp's types, which share a scale."""

BLOCKS = {"int8": 0, "q8_k": 256}
"""Those of other types; 0: a row has one scale, as in CTranslate2."""

FLOAT8 = re.compile(r"f(p|loat)?8")
"""Names of floats of 8 bits; they have the four bits of exponent of e4m3, unless they say e5m2."""

TURNED = 64
"""Numbers of a block of values that llama.cpp rotates; no other width of heads is rotated."""

WAY = "assay_rounded"
"""The name of the attention function that rounds."""

LINEAR = nn.Linear | Conv1D
"""Layers whose inputs and weights are rounded."""


def kind(name: str) -> str:
    """The kind of type of that name: ``int8``, ``q8_0`` and ``fp8_e4m3`` have 8 bits."""
    name = OTHER_NAMES.get(name, name)
    return name if name in DTYPES else ("8 bits" if "8" in name else "fewer bits")


def rounded(states: Tensor, name: str) -> Tensor:
    """``states`` [..., width] as a cache, an input or a weight of the type ``name`` has them.

    Integers of 8 bits have 127 steps up to the largest number: of a row in ``int8``, which is
    what CTranslate2 does, and else of a block, as in llama.cpp's q8_0.  Those of fewer have 8 in
    ``q4_0``, 4 in ``q3_k``.  A row that does not fill its blocks has some of `BLOCK`, or is one.
    """
    if (same := kind(name)) in DTYPES:
        return states.to(DTYPES[same]).to(states.dtype)
    width = states.shape[-1]
    sizes = (BLOCKS.get(name, BLOCK) or width, BLOCK, width)
    size = next(each for each in sizes if width % each == 0)
    blocks = states.double().unflatten(-1, (-1, size))
    largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    if FLOAT8.search(name):
        kept = torch.float8_e5m2 if "e5m2" in name else torch.float8_e4m3fn
        steps = largest.abs().amax((-2, -1), keepdim=True) / torch.finfo(kept).max
        steps = torch.where(steps == 0, 1.0, steps)
        return ((blocks / steps).to(kept).double() * steps).flatten(-2).to(states.dtype)
    if same == "8 bits":
        steps, low, high = largest.abs() / 127, -127, 127
    else:
        low = -(2 ** (int((re.findall(r"[2-7]", name) or "4")[0]) - 1))
        steps, high = largest / low, -low - 1
    numbers = (blocks / torch.where(steps == 0, 1.0, steps)).round().clamp(low, high)
    steps = steps.half().double() if size == BLOCK else steps  # as they are stored
    return (numbers * steps).flatten(-2).to(states.dtype)


def rotated(states: Tensor, size: int) -> Tensor:
    """``states`` [..., width] with each block of ``size`` numbers, a power of two, turned by the
    orthonormal Hadamard matrix, which is its own inverse.
    """
    turn = torch.from_numpy(scipy.linalg.hadamard(size)).to(states) / size**0.5
    return (states.unflatten(-1, (-1, size)) @ turn).flatten(-2)


@contextmanager
def rounded_attention(model: Any, engine: Engine, cache: str) -> Iterator[None]:
    """``model`` while it attends to keys and values of the type ``cache``; '' leaves it as it is.

    Queries are rounded, and all are rotated before and back after, as ``engine`` says of itself.
    Raises `Missing` where the model looks no attention function up by name.
    """
    if not cache:
        yield
        return
    before, called = compat.settings(model, compat.ATTENTION), list[bool]()
    (_, usual), functions = before[0], releases.attention_functions()

    def attend(
        module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Any]:
        called.append(True)
        own = functions.get(usual) or sys.modules[type(module).__module__].eager_attention_forward
        width, states = key.shape[-1], value.shape[-1]
        turned = engine.rotated and width % TURNED == states % TURNED == 0
        if turned:  # scores stay as they are, and outputs are turned back
            query, key = (rotated(each, width & -width) for each in (query, key))
            value = rotated(value, TURNED)
        query = rounded(query, engine.queries) if engine.queries else query
        key, value = (rounded(each, cache) for each in (key, value))
        output, weights = own(module, query, key, value, *args, **kwargs)
        return rotated(output, TURNED) if turned else output, weights

    functions.register(WAY, attend)
    masks = AttentionMaskInterface()
    masks.register(WAY, masks[usual])
    compat.set_attention(model, WAY)
    try:
        yield
    finally:
        compat.restore(before, compat.ATTENTION)
    if not called:
        raise Missing(
            f"engine-model: {type(model).__name__} looks up no attention, in which a cache in "
            f"{cache} could be rounded"
        )


@contextmanager
def rounded_inputs(model: Any, kind: str) -> Iterator[None]:
    """``model`` while inputs of its linear layers are rounded to the type ``kind``; '' is none."""

    def round_input(layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (rounded(inputs[0], kind), *inputs[1:])

    layers = [each for each in model.modules() if kind and isinstance(each, LINEAR)]
    handles = [each.register_forward_pre_hook(round_input) for each in layers]
    try:
        yield
    finally:
        for each in handles:
            each.remove()


def with_rounded_weights(model: Subject, kind: str) -> Subject:
    """``model`` with the weights of its linear layers and embeddings rounded to ``kind``.

    Each output, or each token, is a row.
    """
    copied: Any = copy.deepcopy(model.model)
    with torch.no_grad():
        for each in copied.modules():
            if isinstance(each, nn.Linear | nn.Embedding):
                each.weight.copy_(rounded(each.weight, kind))
            elif isinstance(each, Conv1D):
                each.weight.copy_(rounded(each.weight.T, kind).T)
    return replace(model, model=copied)


def of_model(
    model: Subject, requests: Sequence[Ids], engine: Engine, inputs: str = "", cache: str = ""
) -> list[Rows]:
    """The log-probabilities of ``model`` as it runs, of each of ``requests`` [n], of one length.

    The ``inputs`` of its linear layers, and its ``cache``, are rounded to these types.
    """
    with rounded_inputs(model.model, inputs), rounded_attention(model.model, engine, cache):
        output = model(torch.tensor(requests, device=model.device), states=False)
    return [rows_of(Scores(each), engine.vocabulary, model.name) for each in output.rows["logits"]]


def cache_of(engine: Engine) -> str:
    """The type that the engine's cache is rounded to; '' where it computes in that."""
    return "" if engine.cache == engine.dtype else engine.cache
