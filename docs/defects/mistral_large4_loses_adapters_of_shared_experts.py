"""Mistral Large 4 loads an adapter without what it has on the shared experts.

Claims: G10
Types: mistral_large4
Met by: whoever trains an adapter (LoRA) on all linear layers of Mistral Large 4 and loads it: the
    shared experts have a new one, which does nothing. A report of missing keys is printed
Seen in: transformers 5.23.0, 5.24.0
Expected: what is loaded is what was saved
Observed: 6 of 6 weights of the adapter differ
Cause: conversion_mapping.py, 2636: checkpoints say `.shared_experts.`, which is renamed wherever
    it stands, so the module's name, `.mlp.shared_experts.`, becomes `.mlp.mlp.shared_experts.`.
    The model's own weights are saved by the checkpoints' name; adapters by the modules' names.
Fix: conversion_mapping.py, 2636: not after `.mlp`
Upstream: not found by searching for "MistralLarge4 adapter shared_experts missing keys"
"""

import inspect
import logging
import sys
import tempfile
import textwrap

import torch
from peft import LoraConfig
from transformers import (
    MistralLarge4Config,
    MistralLarge4ForConditionalGeneration,
    conversion_mapping,
)
from transformers.integrations import peft as integration

logging.disable(logging.WARNING)


def change(function, *lines):
    """Replace an old line of a function's source by a new one, for each pair."""
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in lines:
        assert source.count(old) == 1, f"transformers has no single line {old!r}"
        source = source.replace(old, new)
    body = "def " + source.partition("def ")[2]  # its decorators stay as they are
    cells = function.__code__.co_freevars
    body = f"def scope({', '.join(cells)}):\n{textwrap.indent(body, '    ')}"
    exec(f"{body}\n    return {function.__name__}", function.__globals__, made := {})
    function.__code__ = made["scope"](*cells).__code__


def fix():
    """Apply the fix to transformers as it is installed."""
    old = r'WeightRenaming(r"\.shared_experts\.", r"\.mlp.shared_experts\.")'
    new = old.replace(r'(r"\.shared', r'(r"(?<!\.mlp)\.shared')
    change(conversion_mapping._build_checkpoint_conversion_mapping, (old, new))


if "--fixed" in sys.argv:
    fix()

# transformers 5.24 asks for peft 0.22; LoRA works with older ones too.
integration.MIN_PEFT_VERSION = "0.20.0"
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4}
experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
latent = {"kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
text = sizes | experts | latent | {"vocab_size": 64, "num_key_value_heads": 4}
text |= {
    "num_hidden_layers": 1,
    "mlp_layer_types": ["sparse"],
    "layer_types": ["indexed_attention"],
}
text |= {"indexer_types": ["full"], "no_rope_layers": [1], "kv_source_layers": [0]}
text |= {"index_topk": 8, "index_head_dim": 8, "index_n_heads": 4, "n_group": 1, "topk_group": 1}
text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
vision = sizes | {"model_type": "pixtral", "num_hidden_layers": 1, "head_dim": 8}
config = MistralLarge4Config(text_config=text, vision_config=vision)
model = MistralLarge4ForConditionalGeneration(config)
targets = r".*shared_experts\.(gate|up|down)_proj"
model.add_adapter(LoraConfig(r=4, target_modules=targets, init_lora_weights=False))
again = MistralLarge4ForConditionalGeneration(config)
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
