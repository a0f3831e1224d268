"""Unlimited-OCR and kin load an adapter without what it has on the text model.

Claims: G10
Types: deepseek_ocr2, unlimited_ocr
Met by: whoever trains an adapter (LoRA) on Unlimited-OCR, saves and loads it: the text model has
    a new one, which does nothing. A report of missing keys is printed
Seen in: transformers 5.23.0, 5.24.0
Expected: what is loaded is what was saved
Observed: 8 of 8 weights of the adapter differ
Cause: conversion_mapping.py, 2051: checkpoints say `model.layers.`, which is renamed by a regular
    expression that the module's name ends in, too: `language_model.layers.` becomes
    `language_model.language_model.layers.`. The model's own weights are saved by the checkpoints'
    name; adapters are saved by the modules' names.
Fix: conversion_mapping.py, 2051: `model` has to be a whole word; the same for DeepSeek-OCR 2
Upstream: not found by searching for "UnlimitedOcr adapter missing keys WeightRenaming"
"""

import inspect
import logging
import sys
import tempfile
import textwrap

import torch
from peft import LoraConfig
from transformers import (
    UnlimitedOcrConfig,
    UnlimitedOcrForConditionalGeneration,
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
    old = r'WeightRenaming(r"(^|model\.)layers\.", r"\1language_model.layers.")'
    new = old.replace(r"|model", r"|\bmodel")
    change(conversion_mapping._build_checkpoint_conversion_mapping, (old, new))


if "--fixed" in sys.argv:
    fix()

# transformers 5.24 asks for peft 0.22; LoRA works with older ones too.
integration.MIN_PEFT_VERSION = "0.20.0"
torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
text = sizes | experts | {"vocab_size": 64, "intermediate_size": 32, "num_key_value_heads": 4}
sam = sizes | {"output_channels": 32, "mlp_dim": 32, "global_attn_indexes": [0]}
sam |= {"downsample_channels": [32, 32]}
images = {"sam_config": sam, "encoder_config": sizes | {"intermediate_size": 32}}
config = UnlimitedOcrConfig(text_config=text, vision_config=images, image_token_id=60)
model = UnlimitedOcrForConditionalGeneration(config)
targets = r".*language_model.*self_attn\.(q|k|v|o)_proj"
model.add_adapter(LoraConfig(r=4, target_modules=targets, init_lora_weights=False))
again = UnlimitedOcrForConditionalGeneration(config)
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
