"""The memory that checking a model takes, in bytes, also of a model without numbers (meta)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from assay.harness.models.upcasting import SLICE

WIDE = torch.float64.itemsize
"""Bytes of a number in the float64 reference."""

TOKENS = 192
"""Tokens of the largest pass of a law: two prompts of the longest drawn length."""

LOGITS = 6
"""Tensors of logits in float64 that a comparison holds at once."""


@dataclass(frozen=True)
class Needs:
    """Bytes of the ``weights`` as stored, of a float64 ``copy`` of them, of the ``largest``
    weight in float64 as a product of the reference converts it, of the ``embedding`` that copies
    have for themselves, and of ``activations`` of a law's largest pass.
    """

    weights: int
    copy: int
    largest: int
    embedding: int
    activations: int

    @property
    def streamed(self) -> int:
        """The peak where the reference uses the model's own weights."""
        return self.weights + self.largest + self.embedding + self.activations

    @property
    def copied(self) -> int:
        """The peak where the reference is a copy, and so is what was saved and loaded."""
        return 2 * self.weights + self.copy + self.activations


def of(model: PreTrainedModel) -> Needs:
    """What checking ``model`` needs; its parameters may be on the meta device."""
    weights = [each for each in model.parameters() if each.is_floating_point()]
    in_products = [min(w.numel(), SLICE) if w.ndim == 2 else w.numel() for w in weights]
    config = model.config.get_text_config(decoder=True)
    width = getattr(config, "hidden_size", 0)
    inner = max(getattr(config, "intermediate_size", None) or 4 * width, width)
    layers = getattr(config, "num_hidden_layers", 0)
    vocabulary = getattr(config, "vocab_size", 0)
    states = TOKENS * (layers * width * 2 + inner * 4)
    logits = TOKENS * vocabulary * LOGITS
    return Needs(
        weights=sum(each.numel() * each.itemsize for each in model.parameters()),
        copy=sum(each.numel() for each in weights) * WIDE,
        largest=max(in_products, default=0) * WIDE,
        embedding=_embedding(model),
        activations=(states + logits) * WIDE,
    )


def _embedding(model: PreTrainedModel) -> int:
    try:
        table = model.get_input_embeddings()
    except NotImplementedError:
        return 0
    if not isinstance(table, nn.Module):
        return 0
    return sum(each.numel() * each.itemsize for each in table.parameters(recurse=False))
