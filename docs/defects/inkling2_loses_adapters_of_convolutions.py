"""Inkling 2 loads an adapter without what it has on its dynamic convolutions.

Claims: G10
Types: inkling2, inkling2_loop, inkling2_loop_text, inkling2_text
Met by: whoever trains an adapter (LoRA) on all linear layers of Inkling 2, saves and loads it: the
    convolutions' part is a new one, which does nothing. A report of missing keys is printed
Seen in: transformers 5.23.0, 5.24.0
Expected: what is loaded is what was saved
Observed: 4 of 32 weights of the adapter differ, all of them on k_sconv and v_sconv
Cause: conversion_mapping.py, 338: checkpoints say `k_sconv.weight_proj`, which is renamed to
    `k_sconv.weight_proj.weight` wherever it stands in a name, also in that of the adapter,
    `k_sconv.weight_proj.lora_A.weight`. The model's own weights are saved by the checkpoints'
    names; adapters are saved by the modules' names.
Fix: conversion_mapping.py, 339: a name that goes on is not renamed
Upstream: not found by searching for "inkling2 weight_proj WeightRenaming adapter missing keys"
"""

import logging
import sys
import tempfile

import torch
from peft import LoraConfig
from transformers import Inkling2ForCausalLM, Inkling2TextConfig, conversion_mapping
from transformers.core_model_loading import WeightRenaming
from transformers.integrations import peft as integration

logging.disable(logging.WARNING)


def fix():
    """Apply the fix to transformers as it is installed."""
    old, new = (rf"(convolution|sconv)\.weight_proj{end}" for end in ("", r"(?!\.)"))
    for model_type in ("inkling2_text", "inkling2_loop_text"):
        known = conversion_mapping.get_checkpoint_conversion_mapping(model_type)
        if known is not None:  # the second one is of transformers 5.24
            (at,) = (i for i, each in enumerate(known) if each.source_patterns == [old])
            known[at] = WeightRenaming(new, r"\1.weight_proj.weight")
            conversion_mapping.register_checkpoint_conversion_mapping(model_type, known, True)


if "--fixed" in sys.argv:
    fix()

# transformers 5.24 asks for peft 0.22; LoRA works with older ones too.
integration.MIN_PEFT_VERSION = "0.20.0"
torch.manual_seed(0)
config = Inkling2TextConfig(
    vocab_size=64,
    unpadded_vocab_size=64,
    hidden_size=32,
    moe_intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    swa_num_attention_heads=4,
    swa_num_key_value_heads=2,
    swa_head_dim=8,
    n_routed_experts=4,
    num_experts_per_tok=2,
    layer_types=["hybrid_sliding", "hybrid"],
)
model = Inkling2ForCausalLM(config)
linear = [n for n, layer in model.model.named_modules() if isinstance(layer, torch.nn.Linear)]
targets = [f"model.{name}" for name in linear]
model.add_adapter(LoraConfig(r=4, target_modules=targets, init_lora_weights=False))
again = Inkling2ForCausalLM(config)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    again.load_adapter(folder)
saved, loaded = (
    {name: weight for name, weight in each.named_parameters() if "lora_" in name}
    for each in (model, again)
)
lost = [name for name, weight in saved.items() if not torch.equal(weight, loaded[name])]
print("expected: what is loaded is what was saved")
print(f"observed: {len(lost)} of {len(saved)} weights of the adapter differ: {lost[:1]}")
sys.exit(len(lost) > 0)
