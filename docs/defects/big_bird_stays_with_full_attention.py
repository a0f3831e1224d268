"""BigBird stays with full attention after one short prompt.

Claims: C5, C10
Types: big_bird, bigbird_pegasus
Met by: whoever runs short and long inputs through one model: results depend on the order
Seen in: transformers 5.23.0
Expected: the same prompt gives the same logits, whatever was run in between
Observed: off by 6.2 after a prompt of 4 tokens, by 0 before
Cause: models/big_bird/modeling_big_bird.py, 1591, and
    models/bigbird_pegasus/modeling_bigbird_pegasus.py, 1553:
    `self.set_attention_type("original_full")` in forward, which nothing undoes. With
    set_attention_type("block_sparse") afterwards the difference is gone (0).
Upstream: issue #20031 (closed, not mended)
"""

import sys

import torch
from transformers import BigBirdConfig, BigBirdForMaskedLM

torch.manual_seed(0)
config = BigBirdConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    sep_token_id=2,
    block_size=2,
    num_random_blocks=1,
    initializer_range=0.3,
)
model = BigBirdForMaskedLM(config).eval()
ids = torch.randint(3, 64, (1, 40))
with torch.no_grad():
    first, again = model(ids).logits, model(ids).logits
    model(ids[:, :4])
    after = model(ids).logits
same, off = ((x - first).abs().max().item() for x in (again, after))
print("expected: the same prompt gives the same logits, whatever was run in between")
print(f"observed: off by {off:.2g} after a prompt of 4 tokens, by {same:.2g} before")
sys.exit(off > 1e-3)
