"""A cache with a sliding window of one token keeps every key, and tokens attend to them.

Claims: C2, C4, C5
Types: mistral
Met by: whoever sets sliding_window=1, in this type or another, and decodes with a cache
Seen in: transformers 5.23.0
Expected: tokens read one by one with a cache give the logits of one pass
Observed: logits that are off by 5.6; with sliding_window=2 by 3e-06
Cause: cache_utils.py, 246: the layer keeps `keys[:, :, -sliding_window + 1 :]`, which is all of
    them for a window of one (`-0:`).
Upstream: not found by searching for "sliding_window=1 cache keeps all keys"
"""

import sys

import torch
from transformers import DynamicCache, MistralConfig, MistralForCausalLM

ids = torch.arange(3, 9)[None]


def off(window):
    """How far the logits of tokens read one by one are from those of one pass."""
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=window,
        initializer_range=0.3,
    )
    model = MistralForCausalLM(config).eval()
    cache = DynamicCache(config=config)
    steps = [model(ids[:, i : i + 1], past_key_values=cache).logits for i in range(ids.shape[1])]
    return (torch.cat(steps, 1) - model(ids).logits).abs().max().item()


with torch.no_grad():
    one, two = off(1), off(2)
print("expected: tokens read one by one with a cache give the logits of one pass")
print(f"observed: logits that are off by {one:.2g}; with sliding_window=2 by {two:.0e}")
sys.exit(one > 1e-3)
