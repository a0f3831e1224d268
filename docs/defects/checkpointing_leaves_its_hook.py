"""Gradient checkpointing that is disabled leaves its hook: embeddings go on to require gradients.

Claims: none
Types: llama
Met by: whoever trains with gradient checkpointing and then evaluates without torch.no_grad(): each
    pass keeps all its activations; each further training adds a hook
Seen in: transformers 5.23.0
Expected: no hooks on the embedding, and logits without a gradient in a frozen model
Observed: 3 hooks after enabling and disabling it three times; the logits require a gradient
Cause: modeling_utils.py: `_activation_checkpointing_enable` calls enable_input_require_grads() for
    every model, and `_activation_checkpointing_disable` removes the hook for models with adapters
    alone.  Each enabling replaces the handle of the one before, which nothing can remove then.
Upstream: not found by searching for "gradient_checkpointing_disable enable_input_require_grads
    _require_grads_hook"
"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
)
model = LlamaForCausalLM(config).eval().requires_grad_(False)
for _ in range(3):
    model.activation_checkpointing_enable()
    model.activation_checkpointing_disable()
hooks = len(model.get_input_embeddings()._forward_hooks)
logits = model(torch.tensor([[1, 2, 3]])).logits
print("expected: no hooks on the embedding, and logits without a gradient in a frozen model")
print(f"observed: {hooks} hooks; the logits require a gradient: {logits.requires_grad}")
sys.exit(hooks > 0 or logits.requires_grad)
