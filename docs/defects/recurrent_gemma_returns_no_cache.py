import sys

import torch
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

torch.manual_seed(0)
config = RecurrentGemmaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    lru_width=32,
    attention_window_size=8,
    w_init_variance_scale=1.0,
)
model = RecurrentGemmaForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 6))
with torch.no_grad():
    first = model(ids[:, :3], use_cache=True)
    cache = first.get("past_key_values")
    rest = model(ids[:, 3:], past_key_values=cache, use_cache=True).logits
    off = (rest - model(ids).logits[:, 3:]).abs().max().item()
print("expected: use_cache=True returns a cache, and going on from it gives the logits of one pass")
print(f"observed: the cache is {cache}, and the logits are off by {off:.2g}")
sys.exit(cache is None)
