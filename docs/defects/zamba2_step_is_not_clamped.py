import sys

import torch
from transformers import Zamba2Config, Zamba2ForCausalLM

torch.manual_seed(0)
config = Zamba2Config(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    layers_block_type=["linear_attention", "hybrid"],
    num_attention_heads=4,
    n_mamba_heads=8,
    mamba_d_state=8,
    initializer_range=0.3,
    time_step_min=0.05,
)
model = Zamba2ForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 8))


def off(chunk):
    """How far the last logits are from one pass if the last `chunk` tokens come on a cache."""
    cache = model(ids[:, :-chunk], use_cache=True).past_key_values
    last = model(ids[:, -chunk:], past_key_values=cache).logits[0, -1]
    return (last - model(ids, use_cache=False).logits[0, -1]).abs().max().item()


with torch.no_grad():
    one, two = off(1), off(2)
print("expected: the same logits whether the last token comes alone or with others")
print(f"observed: alone off by {one:.2g}, two together by {two:.0e}")
sys.exit(one > 1e-3)
