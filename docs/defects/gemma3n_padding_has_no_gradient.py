"""Gemma 3n's gradients are NaN where a token's embedding is zero, as a new model's padding is.

Claims: G3
Types: gemma3n_text
Met by: whoever trains a Gemma 3n from its configuration on padded batches: all weights become NaN
    in the first step
Seen in: transformers 5.23.0
Expected: finite gradients for a padded batch whose padding is ignored by mask and labels
Observed: NaN in the gradient of 5 of 5 blocks
Cause: models/gemma3n/modeling_gemma3n.py, 1693 and 1729: the streams are scaled by the root of
    a mean square, ``torch.mean(x**2) ** 0.5``, whose gradient is infinite where x is zero.
    The embedding's row of pad_token_id, 0, is zero until it is trained.
Upstream: not found by searching for "gemma3n NaN gradients padding altup target_magnitude"
"""

import sys

import torch
from transformers import Gemma3nForCausalLM, Gemma3nTextConfig

KINDS = ["sliding", "full", "sliding", "sliding", "full"]

torch.manual_seed(0)
config = Gemma3nTextConfig(
    vocab_size=64,
    vocab_size_per_layer_input=64,
    hidden_size=32,
    hidden_size_per_layer_input=8,
    intermediate_size=64,
    num_hidden_layers=5,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    num_kv_shared_layers=2,
    layer_types=[f"{kind}_attention" for kind in KINDS],
    laurel_rank=4,
    pad_token_id=0,
)
model = Gemma3nForCausalLM(config)
ids = torch.tensor([[5, 6, 7, 8], [0, 0, 9, 10]])
labels = ids.where(ids > 0, -100)
model(ids, attention_mask=(ids > 0).long(), labels=labels, use_cache=False).loss.backward()
blocks = [
    any(bool(p.grad.isnan().any()) for p in block.parameters() if p.grad is not None)
    for block in model.model.layers
]
print("expected: finite gradients for a padded batch whose padding is ignored by mask and labels")
print(f"observed: NaN in the gradient of {sum(blocks)} of {len(blocks)} blocks")
sys.exit(any(blocks))
