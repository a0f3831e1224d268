"""xLSTM in bfloat16 cannot read a chunk of 64 tokens unless it has a cache.

Claims: C10, G14
Types: xlstm
Met by: use_cache=False in bfloat16 with a prompt of chunk_size (64) tokens or more
Seen in: transformers 5.23.0
Expected: logits for prompts of any length, with a cache or without
Observed: 63 tokens: works; 64: RuntimeError; 64 with a cache: works
Cause: `wrap_chunkwise_arbitrary_sequence_length` (models/xlstm/modeling_xlstm.py, 641) makes its
    first state in float32, and the gates that come of it are multiplied by values in bfloat16
    (146). A cache's state has the model's dtype. Given the keys' dtype the error is gone.
Upstream: not found by searching for "xLSTM bfloat16 expected m1 and m2 to have the same dtype
    chunkwise"; PR #47046 (open) leaves a fresh cache's state out, too
"""

import sys

import torch
from transformers import xLSTMConfig, xLSTMForCausalLM

torch.manual_seed(0)
config = xLSTMConfig(vocab_size=64, hidden_size=128, num_heads=4, num_hidden_layers=2)
model = xLSTMForCausalLM(config).eval().to(torch.bfloat16)
ids = torch.randint(1, 64, (1, 64))


def result(n, use_cache):
    """What comes of the first n tokens."""
    try:
        with torch.no_grad():
            model(ids[:, :n], use_cache=use_cache)
    except RuntimeError as error:
        return type(error).__name__
    return "works"


short, long, cached = result(63, False), result(64, False), result(64, True)
print("expected: logits for prompts of any length, with a cache or without")
print(f"observed: 63 tokens: {short}; 64: {long}; 64 with a cache: {cached}")
sys.exit(long != "works")
