"""Laguna loads an adapter without what it has on the shared experts.

Claims: G10
Types: laguna
Met by: whoever trains an adapter (LoRA) on all linear layers of Laguna, saves and loads it: the
    shared experts' part is a new one, which does nothing. A report of missing keys is printed
Seen in: transformers 5.23.0, 5.24.0
Expected: what is loaded is what was saved
Observed: 6 of 32 weights of the adapter differ, all of them on mlp.shared_experts
Cause: conversion_mapping.py, 2282: checkpoints say `mlp.shared_expert.`, which is renamed by a
    regular expression whose last dot matches any character. The name that the module has,
    `mlp.shared_experts.`, matches too and becomes `mlp.shared_experts..`. The model's own weights
    are saved by the checkpoints' name; adapters are saved by the modules' names.
Fix: conversion_mapping.py, 2282: the dots are escaped, as in other renamings
Upstream: not found by searching for "laguna shared_experts WeightRenaming adapter missing keys"
"""

import inspect
import logging
import sys
import tempfile
import textwrap

import torch
from peft import LoraConfig
from transformers import LagunaConfig, LagunaForCausalLM, conversion_mapping
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
    old = 'WeightRenaming("mlp.shared_expert.", '
    new = r'WeightRenaming(r"mlp\.shared_expert\.", '
    change(conversion_mapping._build_checkpoint_conversion_mapping, (old, new))


if "--fixed" in sys.argv:
    fix()

# transformers 5.24 asks for peft 0.22; LoRA works with older ones too.
integration.MIN_PEFT_VERSION = "0.20.0"
torch.manual_seed(0)
config = LagunaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=32,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_experts=4,
    num_experts_per_tok=2,
    pad_token_id=0,
)
model = LagunaForCausalLM(config)
linear = [n for n, layer in model.model.named_modules() if isinstance(layer, torch.nn.Linear)]
targets = [f"model.{name}" for name in linear]
model.add_adapter(LoraConfig(r=4, target_modules=targets, init_lora_weights=False))
again = LagunaForCausalLM(config)
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
