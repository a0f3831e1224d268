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
given = dict(max_new_tokens=1, do_sample=False, output_logits=True, return_dict_in_generate=True)
ids, mask = torch.tensor([[0, 0, 0, 5, 6], [7, 8, 9, 10, 11]]), torch.ones(2, 5).long()
mask[0, :3] = 0
alone = model.generate(ids[:1, 3:], **given).logits[0][0]
padded = model.generate(ids, attention_mask=mask, **given).logits[0][0]
off = (padded - alone).abs().max().item()
print(f"expected: generate() gives a left-padded prompt the logits that it has alone (size {alone.abs().max():.1f})")
print(f"observed: logits that are off by {off:.2g}")
sys.exit(off > 1e-3)
