"""After a longer prompt, one of exactly the original length is rotated by the longer one's angles.

Claims: C6
Types: llama, *+dynamic*
Met by: whoever scales rotary positions dynamically, in this type or another, and reads a prompt
    of max_position_embeddings tokens after a longer one
Seen in: transformers 5.23.0
Expected: a prompt of the original length has one answer, before and after a longer one
Observed: logits that are off by 6.4; for a prompt one token shorter by 0
Cause: modeling_rope_utils.py, 113: frequencies are reset where `seq_len < original_max_seq_len`,
    and they grow where it is larger: a prompt of exactly that length does neither
Fix: none, because none has been written yet
Upstream: not found by searching for "dynamic rope inv_freq not reset seq_len equals
    original_max_seq_len"; PR 46624 repaired the reset after longer prompts, and not this
"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=16,
    rope_scaling={"rope_type": "dynamic", "factor": 4.0},
    initializer_range=0.3,
)
model = LlamaForCausalLM(config).eval()
ids = torch.arange(3, 35)[None]


def off(length):
    """How far the logits of a prompt of this length move once a longer one was read."""
    model(ids[:, :1])  # resets the frequencies
    before = model(ids[:, :length]).logits
    model(ids)
    return (model(ids[:, :length]).logits - before).abs().max().item()


with torch.no_grad():
    own, shorter = off(16), off(15)
print("expected: a prompt of the original length has one answer, before and after a longer one")
print(
    f"observed: logits that are off by {own:.2g}; for a prompt one token shorter by {shorter:.0f}"
)
sys.exit(own > 1e-3)
