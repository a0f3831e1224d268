import sys

import torch
from transformers import BambaConfig, BambaForCausalLM

torch.manual_seed(0)
config = BambaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, attn_layer_indices=[1], mamba_n_heads=8,
    mamba_d_state=8, mamba_chunk_size=4, initializer_range=0.3,
)
model = BambaForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 6))
with torch.no_grad():
    whole = model(ids).logits[:, -1]
    def last(**given):
        cache = model(ids[:, :-1], use_cache=True).past_key_values
        return model(ids[:, -1:], past_key_values=cache, **given).logits[:, -1]
    off = (last() - whole).abs().max().item()
    given = (last(position_ids=torch.tensor([[5]])) - whole).abs().max().item()
print(f"expected: the last token on a cache of the others gives the logits of one pass")
print(f"observed: logits that are off by {off:.2g}, and by {given:.0e} with position_ids=[[5]]")
sys.exit(off > 1e-3)
