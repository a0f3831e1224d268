"""Gradient checkpointing that is disabled leaves its hook: embeddings go on to require gradients.

Claims: none
Types: llama
Met by: whoever trains with gradient checkpointing and then evaluates without torch.no_grad(): each
    pass keeps all its activations; each further training adds a hook
Seen in: transformers 5.23.0, 5.24.0
Expected: no hooks on the embedding, and logits without a gradient in a frozen model
Observed: 3 hooks after enabling and disabling it three times; the logits require a gradient
Cause: modeling_utils.py: `_activation_checkpointing_enable` calls enable_input_require_grads() for
    every model, and `_activation_checkpointing_disable` removes the hook for models with adapters
    alone.  Each enabling replaces the handle of the one before, which nothing can remove then.
Fix: modeling_utils.py, 3273: the hook is removed for every model; 2143: an earlier one is removed
    first
Upstream: not found by searching for "gradient_checkpointing_disable enable_input_require_grads
    _require_grads_hook"
"""

import inspect
import sys
import textwrap

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel


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
    change(
        PreTrainedModel._activation_checkpointing_disable,
        (
            'if getattr(self, "_hf_peft_config_loaded", False):\n'
            "        self.disable_input_require_grads()",
            "self.disable_input_require_grads()",
        ),
    )
    change(
        PreTrainedModel.enable_input_require_grads,
        ("    hooks = []\n", "    self.disable_input_require_grads()\n    hooks = []\n"),
    )


if "--fixed" in sys.argv:
    fix()

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
