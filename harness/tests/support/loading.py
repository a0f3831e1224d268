"""Loads of model folders: the plain way, those that are refused, and what counts as the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.harness.models.loading.loading import load
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.folders import listing, logits

CPU = torch.device("cpu")
PLAIN: dict[str, Any] = {"dtype": torch.float32, "device": CPU}
KINDS = ["gpt2", "llama", "bert", "t5"]
FC = "transformer.h.1.mlp.c_fc.weight"


def refused(spec: str | Path, **options: Any) -> str:
    """The one line with which `load` refuses ``spec``, leaving its files as they were."""
    __tracebackhide__ = True
    before = listing(Path(spec)) if os.path.isdir(spec) else {}
    with pytest.raises(BadInput) as caught:
        load(str(spec), **(PLAIN | options))
    message = str(caught.value)
    assert message.isprintable(), "more than one line, or control characters"
    assert str(spec) in message
    assert not before or listing(Path(spec)) == before
    return message


def set_number(value: float) -> Any:
    """A change for `edit_weights`: one number of one tensor becomes ``value``."""

    def change(tensors: dict[str, Tensor]) -> None:
        tensors[FC][1, 2] = value

    return change


def same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    """Weights are equal to the bit, and outputs but for rounding, which addresses may change."""
    weights = dict(one.named_parameters())
    assert weights.keys() == dict(other.named_parameters()).keys()
    assert all(torch.equal(weights[name], weight) for name, weight in other.named_parameters())
    actual, expected = logits(one), logits(other)
    error = (actual - expected).double().norm() / expected.double().norm()
    assert error < 8 * torch.finfo(expected.dtype).eps
