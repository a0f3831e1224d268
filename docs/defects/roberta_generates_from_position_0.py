import sys

import torch
from transformers import RobertaConfig, RobertaForCausalLM

torch.manual_seed(0)
config = RobertaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    initializer_range=0.3,
    is_decoder=True,
)
model = RobertaForCausalLM(config).eval()
ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
given = dict(max_new_tokens=1, do_sample=False, output_logits=True, return_dict_in_generate=True)
with torch.no_grad():
    generated = model.generate(ids, attention_mask=torch.ones_like(ids), **given).logits[0][0]
    forward = model(ids).logits[0, -1]
    from_0 = model(ids, position_ids=torch.arange(6)[None]).logits[0, -1]
off, same = ((generated - x).abs().max().item() for x in (forward, from_0))
print("expected: generate() sees the logits that a forward pass gives (positions 2, 3, …)")
print(f"observed: logits off by {off:.2g}; from those of position_ids 0, 1, … by {same:.0e}")
sys.exit(off > 1e-3)
