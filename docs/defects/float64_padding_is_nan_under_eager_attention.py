"""Eager attention of a model in float64 gives NaN for left-padded batches.

Claims: C8
Types: llama, mistral, qwen2, qwen3, gemma, gemma2, phi, phi3, gpt_neox, opt, bloom, olmo,
    starcoder2, cohere, stablelm, granite
Met by: whoever runs a model in float64 with attn_implementation="eager" on a left-padded batch
Seen in: transformers 5.23.0, 5.24.0
Expected: the logits of a left-padded prompt are those of the prompt alone
Observed: NaN in every row under eager attention, and a difference of 3e-07 under sdpa, whose
    rotary angles are float32
Cause: masking_utils.py fills the mask with the least number of the model's dtype, and
    `eager_attention_forward` computes the softmax in float32, where the least float64 is -inf.  A
    row of padding, masked entirely, becomes NaN, and 0 times NaN in the next block spreads it.
Fix: masking_utils.py, 630: the least number of float32, in which the softmax is computed, where
    the model's dtype is wider
Upstream: not found by searching for "eager attention float64 left padding nan"
"""

import inspect
import sys
import textwrap

import torch
from transformers import LlamaConfig, LlamaForCausalLM, masking_utils


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
    old = "min_dtype = torch.finfo(dtype).min"
    new = "min_dtype = max(torch.finfo(dtype).min, torch.finfo(torch.float32).min)"
    change(masking_utils.eager_mask, (old, new))


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    initializer_range=0.3,
)
model = LlamaForCausalLM(config).double().eval()
ids, mask = torch.tensor([[0, 0, 5, 6]]), torch.tensor([[0, 0, 1, 1]])


def off(attention):
    """How far the padded prompt's last logits are from those of the prompt alone."""
    model.set_attn_implementation(attention)
    padded = model(ids, attention_mask=mask).logits[0, -1]
    return (padded - model(ids[:, 2:]).logits[0, -1]).abs().max().item()


with torch.no_grad():
    eager, sdpa = off("eager"), off("sdpa")
print("expected: the logits of a left-padded prompt are those of the prompt alone")
print(f"observed: off by {eager:.0e} under eager attention, by {sdpa:.0e} under sdpa")
sys.exit(not eager < 1e-5)
