"""RecurrentGemma's convolution reads padding.

Claims: C4, C5, G3
Types: recurrent_gemma
Met by: everyone who calls generate() on a left-padded batch
Seen in: transformers 5.23.0
Expected: generate() gives a left-padded prompt the logits that it has alone
Observed: logits that are off by 0.48
Cause: `RecurrentGemmaRecurrentBlock.forward` (models/recurrent_gemma/modeling_recurrent_gemma.py,
    414) takes an `attention_mask` and never uses it: the convolution over 4 tokens runs across the
    border of padding and prompt. The recurrence itself is reset where position_ids are 0. With the
    convolution's input set to 0 at padding the difference is gone (2e-6). A padding token whose
    embedding is 0, as with fresh weights, hides it in part.
Upstream: issue #31201 (closed) asks about left padding of the attention mask; the convolution not
    found by searching for "recurrent_gemma left padding batch generation"
"""

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
ids, mask = torch.tensor([[3, 3, 3, 5, 6], [7, 8, 9, 10, 11]]), torch.ones(2, 5).long()
mask[0, :3] = 0
alone = model.generate(ids[:1, 3:], **given).logits[0][0]
padded = model.generate(ids, attention_mask=mask, **given).logits[0][0]
off = (padded - alone).abs().max().item()
print("expected: generate() gives a left-padded prompt the logits that it has alone")
print(f"observed: logits that are off by {off:.2g}")
sys.exit(off > 1e-3)
