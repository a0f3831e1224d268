"""LoRA adapters: folders with adapter_config.json, loaded by peft onto their base model.

Only fields that say what the adapter computes are read: others of peft's name files or modules
that it would open, and are rejected where they are set.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from assay.harness.models.loading.other_formats import ADAPTER
from assay.harness.models.loading.weight_files import read_header, read_json
from assay.harness.models.machine.shortage import ENDS, pass_on, shortage
from assay.harness.results.errors import BadInput, brief, listed

WEIGHTS = "adapter_model.safetensors"

FIELDS = frozenset(
    {
        *("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora", "bias"),
        *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
        *("modules_to_save", "fan_in_fan_out", "lora_bias", "layer_replication"),
        *("trainable_token_indices", "target_parameters", "ensure_weight_tying"),
    }
)
"""Fields of peft's LoraConfig that are passed on."""

ABOUT = frozenset(
    {
        *("peft_type", "task_type", "peft_version", "base_model_name_or_path", "revision"),
        *("inference_mode", "lora_dropout", "init_lora_weights", "auto_mapping", "megatron_core"),
        *("qalora_group_size", "runtime_config"),
    }
)
"""Fields that say nothing about what a loaded adapter computes."""


@dataclass(frozen=True)
class Adapter:
    """The adapter in ``folder``: peft's ``settings`` for it, and its base's name or path."""

    folder: Path
    settings: dict[str, Any]
    base: str


def read(spec: str, base: str | None) -> Adapter | None:
    """The adapter in the folder ``spec``, None if it holds none; ``base`` replaces its own base.

    Raises `BadInput` where it cannot be loaded, or names a base that is no folder here.
    """
    folder = Path(os.path.expanduser(spec))
    if not os.path.exists(folder / ADAPTER):  # of any text: no error
        return None
    if (folder / "config.json").exists():
        raise BadInput(
            f"{spec}: holds an adapter ({ADAPTER}) and a model (config.json); give each its folder"
        )
    raw = read_json(folder / ADAPTER, spec)
    if raw.get("peft_type") != "LORA":
        raise BadInput(f"{spec}: its adapter is {raw.get('peft_type')!r}; only LORA can be loaded")
    if wrong := sorted(name for name in raw if raw[name] and name not in FIELDS | ABOUT):
        raise BadInput(f"{spec}: {ADAPTER} sets {listed(wrong)}, which Assay does not load")
    if not (folder / WEIGHTS).is_file():
        raise BadInput(f"{spec}: there is no {WEIGHTS} in it")
    read_header(folder / WEIGHTS, spec)
    named = raw.get("base_model_name_or_path")
    if base is None:
        if not isinstance(named, str) or not os.path.isdir(os.path.expanduser(named)):
            raise BadInput(
                f"{spec}: is an adapter of {named!r}, which is no folder here; say --base=MODEL"
            )
        base = named
    if os.path.exists(os.path.join(os.path.expanduser(base), ADAPTER)):
        raise BadInput(f"{spec}: its base {base} is an adapter too; say --base=MODEL")
    settings = {name: value for name, value in raw.items() if name in FIELDS and value is not None}
    return Adapter(folder, settings, base)


def applied(adapter: Adapter, model: PreTrainedModel, spec: str) -> PreTrainedModel:
    """``model``, the base, with the adapter in it; raises `BadInput`, also without peft."""
    try:
        import peft
    except ImportError as error:
        raise BadInput(f"{spec}: is an adapter; install peft (assay-lm[adapters])") from error
    try:
        config = peft.LoraConfig(**adapter.settings, inference_mode=True)
        whole: Any = peft.get_peft_model(model, config)
        weights = load_file(adapter.folder / WEIGHTS)
        outcome: Any = peft.set_peft_model_state_dict(whole, weights)
    except ENDS as error:
        why = shortage(error) or brief(error)
        raise BadInput(f"{spec}: does not fit its base {adapter.base} ({why})") from error
    if unexpected := sorted(outcome.unexpected_keys):
        raise BadInput(f"{spec}: its base {adapter.base} has no module for {listed(unexpected)}")
    if lacking := sorted(key for key in outcome.missing_keys if "lora_" in key):
        raise BadInput(f"{spec}: its weights lack {listed(lacking)}")
    based: PreTrainedModel = whole.get_base_model()
    return based


def is_within(model: PreTrainedModel) -> bool:
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
    try:
        head: Any = model.get_output_embeddings()
    except (AttributeError, NotImplementedError):
        head = None
    return [
        name
        for name, module in model.named_modules()
        if _is_linear(module)
        and module is not head
        and id(module) not in inside
        and all(len(owners[id(weight)]) == 1 for weight in module.parameters(recurse=False))
    ]


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
