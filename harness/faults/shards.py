"""Faults in a model that is divided among processes, and in no other."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import Pass
from assay.harness.faults.catalogue import fault, part
from assay.harness.models import capabilities
from assay.harness.models.capabilities import Missing
from assay.harness.models.subject import Subject
from assay.harness.operations.ranks import PROCESSES

OUTPUTS, INPUTS = 0, 1
"""The dimensions of a linear layer's weight [outputs, inputs]."""

STYLES = {OUTPUTS: "colwise", INPUTS: "rowwise"}
"""What transformers calls a layer that is divided along a dimension."""


@part("layers divided along their outputs")
def _divided_along_outputs(subject: Subject) -> None:
    _has(subject, OUTPUTS)


@part("layers divided along their inputs")
def _divided_along_inputs(subject: Subject) -> None:
    _has(subject, INPUTS)


@part("vocabulary that two do not divide")
def _undivided_vocabulary(subject: Subject) -> None:
    capabilities.require(subject, "lm-head")
    if subject.vocabulary % PROCESSES == 0:
        raise Missing(f"two processes have equal shares of {subject.vocabulary} ids")


def _has(subject: Subject, dim: int) -> None:
    plan = getattr(subject.model, "tp_plan", None) or {}
    divided = [pattern for pattern, style in plan.items() if style == STYLES[dim]]
    if not any(fnmatchcase(name, each) for name, _ in _linear(subject.model) for each in divided):
        raise Missing(f"its plan of tensor parallelism divides no linear layer {STYLES[dim]}")


@fault(
    "shares-not-summed",
    "where a layer's inputs are divided among processes, each keeps its own share of the sum",
    caught_by=["G12"],
    needs=["tensor-parallel", "layers divided along their inputs"],
)
def _own_share(bed: Bed) -> None:
    for layer in _divided(bed.model, INPUTS):
        bed.set(layer, "forward", _Local(layer))


@fault(
    "gradients-not-summed",
    "where a layer's outputs are divided among processes, the gradient of its input is one share",
    caught_by=["G12"],
    needs=[
        *("tensor-parallel", "layers divided along their outputs"),
        *("lm-head", "parameter-gradients"),
    ],
)
def _own_gradient(bed: Bed) -> None:
    for layer in _divided(bed.model, OUTPUTS):
        bed.set(layer, "forward", _Local(layer))


@fault(
    "uneven-vocabulary-cut-short",
    "where processes cannot have equal shares of the vocabulary, the last id has the logit 0",
    caught_by=["G12"],
    needs=["tensor-parallel", "vocabulary that two do not divide"],
)
def _cut_short(bed: Bed) -> None:
    if any(hasattr(weight, "placements") for weight in bed.model.parameters()):
        bed.after_any(bed.model, _last_lost)


def _last_lost(forward: Pass, output: Any) -> Any:
    logits = getattr(output, "logits", None)
    if isinstance(logits, Tensor) and logits.shape[-1] % PROCESSES:
        mask = torch.ones(logits.shape[-1], dtype=logits.dtype, device=logits.device)
        mask[-1] = 0
        output.logits = logits * mask
    return output


class _Local:
    """A layer's forward by one process's weights alone."""

    def __init__(self, layer: nn.Linear) -> None:
        self.layer = layer

    def __call__(self, inputs: Tensor) -> Tensor:
        weight: Any = self.layer.weight
        bias: Any = self.layer.bias
        own = None if bias is None else bias.to_local()
        return nn.functional.linear(inputs, weight.to_local(), own)


def _divided(model: nn.Module, dim: int) -> Iterator[nn.Linear]:
    """The linear layers whose weight is divided along ``dim``, but for those of the logits."""
    for _, layer in _linear(model):
        if any(place.is_shard(dim) for place in getattr(layer.weight, "placements", ())):
            yield layer


def _linear(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """The linear layers and their names, but for those of the logits."""
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and "head" not in name:
            yield name, layer
