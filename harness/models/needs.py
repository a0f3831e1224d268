"""The memory that checking a model takes, in bytes, also of a model without numbers (meta)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from assay.harness.models.quantised_weights import dense_sizes, is_plain
from assay.harness.models.upcasting import SLICE

SHARD = 100_000_000
"""Bytes of a file of a large model that is saved and loaded, if no single weight has more."""

WIDE = torch.float64.itemsize
"""Bytes of a number in the float64 reference."""

TOKENS = 256
"""Tokens of a long pass of a law: one prompt of the greatest length."""

LOGITS = 6
"""Tensors of logits in float64 that a comparison holds at once."""


@dataclass(frozen=True)
class Needs:
    """Bytes of the ``weights`` as stored, of a float64 ``copy`` of them, of the ``largest``
    weight in float64 as a product of the reference converts it, of the ``files`` through which
    weights are saved and loaded, and of ``activations`` of a law's largest pass.
    """

    weights: int
    copy: int
    largest: int
    files: int
    activations: int

    @property
    def streamed(self) -> int:
        """The peak where the reference uses the model's own weights."""
        return self.weights + max(self.largest, self.files) + self.activations

    @property
    def copied(self) -> int:
        """The peak where the reference is a copy, and so is what was saved and loaded."""
        return 2 * self.weights + self.copy + self.activations


def of(model: PreTrainedModel, tokens: int = TOKENS) -> Needs:
    """What checking ``model``, also one on the meta device, needs in passes of ``tokens``."""
    sizes, weights = dense_sizes(model), dict(model.named_parameters())
    in_products = [
        min(size, SLICE) if _in_slices(weights[name]) else size for name, size in sizes.items()
    ]
    config = model.config.get_text_config(decoder=True)
    width = getattr(config, "hidden_size", 0)
    inner = max(getattr(config, "intermediate_size", None) or 4 * width, width)
    layers = getattr(config, "num_hidden_layers", 0)
    vocabulary = getattr(config, "vocab_size", 0)
    states = tokens * (layers * width * 2 + inner * 4)
    logits = tokens * vocabulary * LOGITS
    return Needs(
        weights=sum(w.numel() * w.itemsize for w in weights.values()),
        copy=sum(sizes.values()) * WIDE,
        largest=max(in_products, default=0) * WIDE,
        files=2 * max([SHARD, *(w.numel() * w.itemsize for w in weights.values())]),
        activations=(states + logits) * WIDE,
    )


def _in_slices(weight: torch.Tensor) -> bool:
    """Whether a product converts the weight slice by slice; a quantised one is unpacked whole."""
    return weight.ndim == 2 and weight.is_floating_point() and is_plain(weight)
