"""The linear layers of a model that can be given low-rank adapters (LoRA)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from assay.harness.models.machine.shortage import ENDS, pass_on


def has_adapter(model: PreTrainedModel) -> bool:
    """Whether the model has an adapter in it."""
    return any(type(module).__module__.startswith("peft.") for module in model.modules())


def linear_layers(model: PreTrainedModel) -> list[str]:
    """The names of the layers to which peft's "all-linear" gives adapters: all but the head.

    Layers that share their weight with other modules are left out, as an adapter is one layer's;
    and so are those that are linear by class alone, and those of torch's own attention, which
    passes their weights to a function.
    """
    inside = {
        id(module)
        for each in model.modules()
        if isinstance(each, nn.MultiheadAttention)
        for module in each.modules()
    }
    owners: dict[int, set[int]] = {}
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            owners.setdefault(id(weight), set()).add(id(module))
    head = head_name(model)
    return [
        name
        for name, module in model.named_modules()
        if _is_linear(module)
        and name != head
        and id(module) not in inside
        and all(len(owners[id(weight)]) == 1 for weight in module.parameters(recurse=False))
    ]


def head_name(model: PreTrainedModel) -> str:
    """The name of the module of the output embedding, or empty."""
    try:
        head: Any = model.get_output_embeddings()
    except (AttributeError, NotImplementedError):
        return ""
    return next((name for name, module in model.named_modules() if module is head), "")


def _is_linear(module: nn.Module) -> bool:
    """Whether it is a linear layer: one with a ``forward`` of its own is tried on one row."""
    if isinstance(module, Conv1D) or getattr(type(module), "forward", None) is nn.Linear.forward:
        return True
    if not isinstance(module, nn.Linear):
        return False
    row = torch.ones(1, module.in_features).to(module.weight)
    try:
        with torch.no_grad():
            return bool(module.forward(row).shape == (1, module.out_features))
    except ENDS as error:
        pass_on(error)
        return False
