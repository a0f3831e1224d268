"""The digest of a model: its configuration and weights, independent of where they came from."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from assay.harness.models import placement as placing

VOLATILE = re.compile(r"transformers_version|(torch_)?dtype|architectures|_.*|attn_implementation")
"""Configuration keys that say how a model was made or loaded, not what it computes."""

CHUNK = 2**22
"""Numbers that are hashed at a time, so that casting them takes little memory."""


def digest(model: PreTrainedModel) -> str:
    """SHA-256 (hex) of a model's class, configuration, and weights by name, shape and value.

    The same before and after saving and loading, and in every dtype that holds the weights
    exactly: floats are hashed as float32 where that is exact, as float64 elsewhere.  Settings
    at their defaults do not count, for versions of transformers write different ones down.
    """
    digest = hashlib.sha256()
    said = _settings(model.config)
    try:
        usual = _settings(type(model.config)())
    except (TypeError, ValueError):  # a type made of others has no defaults
        usual = {}
    said = {key: held for key, held in said.items() if key not in usual or held != usual[key]}
    digest.update(f"{type(model).__name__} {json.dumps(said, sort_keys=True)}".encode())
    for name, tensor in placing.tensors(model, model.state_dict()):
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


def _lasting(said: Any) -> Any:
    if not isinstance(said, dict):
        return said
    return {key: _lasting(held) for key, held in said.items() if not VOLATILE.fullmatch(key)}
