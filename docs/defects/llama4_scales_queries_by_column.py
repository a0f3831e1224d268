"""Llama 4 scales the queries of a padded or packed sample by its columns, not by its positions.

Claims: C4, C5, C8, G1, G2, G3
Types: llama4, llama4_text
Met by: whoever runs Llama 4 on batches with left padding, or packed samples, of more tokens than
    floor_scale (8192 by default)
Seen in: transformers 5.23.0, 5.24.0
Expected: a left-padded prompt whose positions are given has the logits that it has alone
Observed: logits that are off by 0.007 of their length (floor_scale of 16)
Cause: models/llama4/modeling_llama4.py, 361: layers without rotation scale queries by a logarithm
    of `torch.arange(n) + past_seen_tokens`, where padding counts; rotations read `position_ids`
Fix: models/llama4/modeling_llama4.py, 361 and 425: the block passes `position_ids` on, and the
    scale is made from them
Upstream: not found by searching for "Llama4 attn_temperature_tuning position_ids left padding";
    vLLM and MaxText make the scale from positions (AI-Hypercomputer/maxtext PR #1611)
"""

import inspect
import sys
import textwrap

import torch
from transformers import Llama4ForCausalLM, Llama4TextConfig
from transformers.models.llama4 import modeling_llama4


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
    given = "position_embeddings=position_embeddings,"
    block = modeling_llama4.Llama4TextDecoderLayer
    change(block.forward, (given, f"{given} position_ids=position_ids,"))
    old = "torch.arange(hidden_states.shape[1], device=hidden_states.device) + past_seen_tokens"
    new = f'kwargs["position_ids"] if kwargs.get("position_ids") is not None else ({old})[None]'
    shape = ("attn_scales.view((1, input_shape[-1], 1, 1))", "attn_scales[:, :, None, None]")
    change(modeling_llama4.Llama4TextAttention.forward, (old, new), shape)


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = Llama4TextConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    intermediate_size_mlp=64,
    num_hidden_layers=2,
    no_rope_layers=[1, 0],
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_local_experts=2,
    floor_scale=16,
    initializer_range=0.3,
)
model = Llama4ForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 24))
padded = torch.cat([torch.zeros(1, 8, dtype=torch.long), ids], dim=1)
mask = (torch.arange(32) >= 8).long()[None]
positions = (torch.arange(32) - 8).clamp(min=0)[None]
with torch.no_grad():
    alone = model(ids).logits
    beside = model(padded, attention_mask=mask, position_ids=positions).logits[:, 8:]
off = ((beside - alone).norm() / alone.norm()).item()
print("expected: a left-padded prompt whose positions are given has the logits that it has alone")
print(f"observed: logits that are off by {off:.2g} of their length")
sys.exit(off > 1e-4)
