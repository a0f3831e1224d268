"""Tiny models of more blocks than the two that they usually have."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
)

from assay.fixtures import families
from assay.fixtures.families.shrink import shrunk
from assay.fixtures.families.weights import to_unit_gain
from assay.harness.models.loading import loading
from assay.harness.models.reference.slices import STACK
from assay.harness.models.subject import Subject

OTHERS = {"masked": AutoModelForMaskedLM, "seq2seq": AutoModelForSeq2SeqLM}
"""The classes of kinds that are not causal."""


def deep_model(model_type: str, blocks: int = 4, **changes: Any) -> PreTrainedModel:
    """A tiny model of ``blocks`` blocks; the kinds of its layers come again in their order.

    ``changes`` are fields of its configuration.
    """
    config = shrunk(AutoConfig.for_model(model_type))
    for stack in (config, *(getattr(config, name) for name in config.sub_configs)):
        usual = getattr(stack, "num_hidden_layers", 0)
        for name in ("num_hidden_layers", *filter(STACK.fullmatch, stack.to_dict())):
            setattr(stack, name, blocks)
        for name, value in stack.to_dict().items():
            if isinstance(value, list) and len(value) == usual:
                setattr(stack, name, (value * blocks)[:blocks])
    for name, value in changes.items():
        setattr(config, name, value)
    kind: Any = OTHERS.get(families.usual_kind(model_type, config), AutoModelForCausalLM)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind.from_config(config)
    to_unit_gain(model, 0)
    return model.eval()


def deep(model_type: str, blocks: int = 4, **changes: Any) -> Subject:
    """`deep_model` as a subject in float32 on the CPU."""
    model, cpu = deep_model(model_type, blocks, **changes), torch.device("cpu")
    loaded = loading.adopt(f"deep {model_type}", model, None, dtype=torch.float32, device=cpu)
    return loaded.subject
