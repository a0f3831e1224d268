"""LLM.int8(): 8-bit products with separate outlier features, simulated in plain torch.

After Dettmers et al., "LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale" (arXiv
2208.07339): features of the input that reach 6.0 anywhere are multiplied at full precision; for
the rest, each row of the input and each row of the weights has its own scale (absmax), and
integers from -127 to 127 are multiplied.  Here they are multiplied as floating-point numbers,
which represent them exactly.  The gradient passes through the rounding, as in the bitsandbytes
library.
"""

from __future__ import annotations

import copy

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from assay.harness.models.capabilities import Missing, require
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.operations.variants import round_rows

OUTLYING = 6.0
"""The paper's threshold for a feature's magnitude."""


BITS = 8
"""Bits of an integer, including its sign."""


class Int8(nn.Module):
    """A linear layer of ``weight`` [out, in] and perhaps a ``bias`` [out]."""

    weight: Tensor
    rounded: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach())  # of a copy, which only replaces it
        self.register_buffer("rounded", round_rows(weight.detach(), BITS))
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] → [..., out]."""
        rows = x.flatten(0, -2)
        outlying = (rows.detach().abs() >= OUTLYING).any(0)
        rest = rows.masked_fill(outlying, 0.0)
        rest = rest + (round_rows(rest, BITS) - rest).detach()
        y = rest @ self.rounded.T + (rows * outlying) @ self.weight.T
        return (y if self.bias is None else y + self.bias).view(*x.shape[:-1], -1)


@memo
def llm_int8(subject: Subject) -> Subject:
    """The subject with `Int8` layers in place of its blocks' linear ones; cached on it.

    Raises `Missing` where there are none, or where not all weights are in memory.
    """
    require(subject, "weights-in-memory")
    model = copy.deepcopy(subject.model)
    name = f"{subject.name} under LLM.int8()"
    quantised = Subject(name, model, subject.tokenizer, provenance=subject.provenance)
    linear = [
        (parent, name, layer)
        for parent in quantised.blocks.modules()
        for name, layer in parent.named_children()
        if isinstance(layer, nn.Linear | Conv1D)
    ]
    if not linear:
        raise Missing("the blocks have no linear layers that Assay recognises")
    for parent, name, layer in linear:
        weight = layer.weight.T if isinstance(layer, Conv1D) else layer.weight
        setattr(parent, name, Int8(weight, layer.bias))
    return quantised
