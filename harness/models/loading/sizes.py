"""The size of the model that config.json describes, compared with the stored tensors.

The model is built without memory (torch's meta device), unless it has more layers than there are
tensors: building those could take hours.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import CONFIG_MAPPING, PretrainedConfig

from assay.harness.models.loading.tensors import Stored
from assay.harness.models.machine.shortage import ENDS
from assay.harness.results.errors import BadInput, brief
from assay.harness.results.quiet import quiet

MOST_LAYERS = 10_000
"""More layers than any model has: some configurations list every layer."""

LAYERS = ("layers", "n_layer")
"""How names of numbers of layers end; Gemma's ``vocab_size_per_layer_input`` is none."""

SHARED = 64
"""Layers that may share the tensors of one."""

BUILT = 2
"""How many times the stored numbers a model may have: position embeddings need not be stored."""

NUMBERS = 2**20
"""An allowance for a model of any size."""


def configuration(raw: dict[str, Any], spec: str) -> PretrainedConfig:
    """The configuration in ``raw``, the content of config.json; raises `BadInput`."""
    if (layers := _layers(raw)) > MOST_LAYERS:
        raise BadInput(f"{spec}: its configuration cannot be used (a model of {layers} layers)")
    try:
        with quiet():
            return CONFIG_MAPPING[raw["model_type"]].from_dict(raw)
    except ENDS as error:  # whatever a model's own configuration class raises
        raise BadInput(f"{spec}: config.json cannot be used ({brief(error)})") from error


def check(raw: dict[str, Any], auto: type[Any], stored: Stored, spec: str) -> set[str]:
    """The names of the model's parameters, none where it cannot be built: loading it says why.

    ``auto`` is the transformers class that will load the model.  Raises `BadInput` where the model
    is far larger than the ``stored`` tensors.
    """
    sizes: dict[str, int] = {}
    if not (large := _layers(raw) > max(SHARED, len(stored.tensors))):
        try:
            config = configuration(raw, spec)
            with quiet(), torch.random.fork_rng(devices=[]), torch.device("meta"):
                model = getattr(auto, "from_config", auto)(config)
        except ENDS:  # whatever a model's own code raises
            return set()
        sizes = {name: each.numel() for name, each in model.named_parameters()}
        # Integers may pack a number in each bit.
        held = stored.floats + 8 * stored.other_bytes
        large = sum(sizes.values()) > BUILT * held + NUMBERS
    if large:
        raise BadInput(
            f"{spec}: the configuration describes a model far larger than its weights, which hold "
            f"{len(stored.tensors)} tensors of {stored.floats} numbers: they are of different "
            "models, or sizes are left out"
        )
    return set(sizes)


def _layers(content: Any) -> int:
    """The largest number of layers that a configuration or a part of it states; 0 for none."""
    if not isinstance(content, dict):
        return 0
    named = (n for key, n in content.items() if key.endswith(LAYERS) and type(n) is int)
    return max([0, *named, *map(_layers, content.values())])
