"""RWKV mixes the prompts of a batch when it goes on from its state by one token.

Claims: C2, C4, C5
Types: rwkv
Met by: everyone who calls generate() on a batch of several prompts
Seen in: transformers 5.23.0
Expected: generate() gives a prompt the logits that it has alone, whatever else is in the batch
Observed: off by 4e-07 in the first step and by 1.4 in the second
Cause: models/rwkv/modeling_rwkv.py, 251 and 307: beside a state, the row before a single token is
    `state[1][:, :, self.layer_id]`, of [batch, hidden], where the token is of [batch, 1, hidden]:
    the product broadcasts to [batch, batch, hidden], a row for every pair of prompts, and
    generate() takes the last of each, so every prompt goes on from the last one's state. With
    `[:, None, :, self.layer_id]` in both places the difference is gone (7e-7).
Upstream: not found by searching for "RWKV batched generation use_cache shifted state broadcasting
    batch size"
"""

import sys

import torch
from transformers import RwkvConfig, RwkvForCausalLM

torch.manual_seed(0)
config = RwkvConfig(
    vocab_size=64, hidden_size=32, attention_hidden_size=32, num_hidden_layers=2, context_length=32
)
model = RwkvForCausalLM(config).eval()
with torch.no_grad():
    for weights in model.parameters():
        if weights.ndim == 2:
            weights.normal_(std=0.2)
ids = torch.randint(3, 64, (2, 6))
given = dict(max_new_tokens=2, do_sample=False, output_logits=True, return_dict_in_generate=True)
given |= dict(eos_token_id=None, pad_token_id=0)
together, alone = (model.generate(some, **given).logits for some in (ids, ids[:1]))
first, second = ((a[0] - b[0]).abs().max().item() for a, b in zip(together, alone, strict=True))
print("expected: generate() gives a prompt the logits that it has alone")
print(f"observed: off by {first:.0e} in the first step and by {second:.2g} in the second")
sys.exit(second > 1e-3)
