import sys

import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM

torch.manual_seed(0)
config = GPTNeoConfig(
    vocab_size=64,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    max_position_embeddings=64,
    attention_types=[[["global", "local"], 1]],
    window_size=8,
    initializer_range=0.3,
    bos_token_id=1,
    eos_token_id=2,
)
model = GPTNeoForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 6))
given = dict(max_new_tokens=8, do_sample=False, output_logits=True, return_dict_in_generate=True)
plain, static = (
    model.generate(ids, cache_implementation=cache, **given).logits[0] for cache in (None, "static")
)
off = (static - plain).abs().max().item()
print("expected: generate() with a static cache sees the logits that it sees without")
print(f"observed: logits off by {off:.2g}, without a warning")
sys.exit(off > 1e-3)
