import sys

import torch
from transformers import MambaConfig, MambaForCausalLM

torch.manual_seed(0)
config = MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, initializer_range=0.5)
model = MambaForCausalLM(config).eval()
ids = torch.randint(1, 64, (1, 6))
with torch.no_grad():
    whole = model(ids).logits[:, 3:]
    cache = model(ids[:, :3], use_cache=True).cache_params
    rest = model(ids[:, 3:], cache_params=cache, use_cache=True).logits
off = (rest - whole).abs().max().item()
print(f"expected: the second half read with the first half's cache gives the logits of one pass (size {whole.abs().max():.1f})")
print(f"observed: logits that are off by {off:.2g}")
sys.exit(off > 1e-3)
