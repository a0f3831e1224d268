"""LoRA adapters: folders with adapter_config.json, loaded by peft onto their base model.

Only fields that say what the adapter computes are read: others of peft's name files or modules
that it would open, and are rejected where they are set.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.harness.models.loading import tensors
from assay.harness.models.loading.folders import ADAPTER, read_json
from assay.harness.models.loading.tensors import Stored
from assay.harness.results.errors import BadInput, brief, listed

if TYPE_CHECKING:  # an adapter that lacks something is named before torch is imported
    from transformers import PreTrainedModel

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
    """An adapter: its ``stored`` tensors, peft's ``settings``, and its base's name or path."""

    stored: Stored
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
    stored = tensors.inspect(folder, spec)
    named = raw.get("base_model_name_or_path")
    if base is None:
        if not isinstance(named, str) or not os.path.isdir(os.path.expanduser(named)):
            raise BadInput(
                f"{spec}: is an adapter of {named!r}, which is no folder here; say --base=MODEL"
            )
        base = named
    if os.path.exists(os.path.join(os.path.expanduser(base), ADAPTER)):
        raise BadInput(f"{spec}: its base {base} is an adapter too; say --base=MODEL")
    for module in raw.get("modules_to_save") or ():
        # By the names of peft's memory, with `modules_to_save` in them, loading does not find it.
        names = (name for name in stored.tensors if "modules_to_save" not in name)
        if not any(f".{module}." in f".{name}" for name in names):
            raise BadInput(
                f"{spec}: {ADAPTER} names {module!r} in modules_to_save, and its weights lack it; "
                "it would stay the base's, or be drawn at random"
            )
    settings = {name: value for name, value in raw.items() if name in FIELDS and value is not None}
    return Adapter(stored, settings, base)


def applied(adapter: Adapter, model: PreTrainedModel, spec: str) -> PreTrainedModel:
    """``model``, the base, with the adapter in it; raises `BadInput`, also without peft."""
    from assay.harness.models.machine.shortage import ENDS, shortage

    try:
        import peft
    except ImportError as error:
        raise BadInput(f"{spec}: is an adapter; install peft (assay-lm[adapters])") from error
    try:
        config = peft.LoraConfig(**adapter.settings, inference_mode=True)
        whole: Any = peft.get_peft_model(model, config)
        weights = {name: each.read() for name, each in adapter.stored.tensors.items()}
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
