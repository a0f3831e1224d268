"""The digest of a model: its configuration and weights, independent of where they came from."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from assay.harness.models.machine import placement as placing
from assay.harness.models.machine.quantised_weights import left_as_they_are

VOLATILE = re.compile(r"transformers_version|(torch_)?dtype|architectures|_.*|attn_implementation")
"""Configuration keys about how a model was built or loaded, not what it computes."""

CHUNK = 2**22
"""Numbers hashed at a time, so that casting takes little memory."""


def digest(model: PreTrainedModel) -> str:
    """SHA-256 (hex) of a model's class, configuration, and weights by name, shape and value.

    The same before and after saving and loading, and in every dtype that represents the weights
    exactly: floats are hashed as float32 where that is exact, as float64 elsewhere.  Settings at
    their defaults do not count, since versions of transformers save different ones.
    """
    digest = hashlib.sha256()
    settings = _settings(model.config)
    try:
        usual = _settings(type(model.config)())
    except (TypeError, ValueError):  # a composite type has no defaults
        usual = {}
    settings = {k: value for k, value in settings.items() if k not in usual or value != usual[k]}
    digest.update(f"{type(model).__name__} {json.dumps(settings, sort_keys=True)}".encode())
    with left_as_they_are(model):
        tensors = model.state_dict()
    for name, tensor in placing.tensors(model, tensors):
        chunks = tensor.detach().flatten().split(CHUNK)
        kind = tensor.dtype
        if tensor.is_floating_point():
            exact = kind != torch.float64 or all(_fits_float32(chunk) for chunk in chunks)
            kind = torch.float32 if exact else torch.float64
        digest.update(f"\n{name} {list(tensor.shape)} {kind}\n".encode())
        for chunk in chunks:
            digest.update(chunk.to("cpu", kind).contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def _fits_float32(values: Tensor) -> bool:
    return torch.equal(values.to(torch.float32).to(values.dtype), values)


def _settings(config: PretrainedConfig) -> dict[str, Any]:
    """A configuration in JSON types, without its volatile keys."""
    return _lasting(json.loads(config.to_json_string(use_diff=False)))


def _lasting(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _lasting(item) for key, item in value.items() if not VOLATILE.fullmatch(key)}
