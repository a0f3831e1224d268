"""ESM puts embeddings that it is given in place of its whole embedding layer.

Claims: C9
Types: esm
Met by: whoever passes inputs_embeds: gradients with respect to the input, soft prompts, protein
    design
Seen in: transformers 5.23.0
Expected: the embeddings of ids give the logits of the ids
Observed: off by 6.1; turned round they give the same, turned round, to 3e-06
Cause: models/esm/modeling_esm.py, 708–715: only ids go through `self.embeddings`, which adds
    positions, scale of token_dropout and norm; `EsmEmbeddings.forward` takes inputs_embeds and is
    not asked. With the embeddings passed through `model.esm.embeddings(inputs_embeds=…)` first the
    difference is gone (0).
Upstream: not found as such; issue #40166 (open) and PR #40181 (merged) are about a crash in the
    path that is no longer taken
"""

import sys

import torch
from transformers import EsmConfig, EsmForMaskedLM

torch.manual_seed(0)
config = EsmConfig(
    vocab_size=64,
    pad_token_id=1,
    mask_token_id=3,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=32,
    initializer_range=0.3,
)
model = EsmForMaskedLM(config).eval()
ids = torch.randint(4, 64, (1, 6))
with torch.no_grad():
    embeddings = model.get_input_embeddings()(ids)
    by_ids, by_embeddings = model(ids).logits, model(inputs_embeds=embeddings).logits
    turned = model(inputs_embeds=embeddings.flip(1)).logits.flip(1)
off, blind = ((x - by_embeddings).abs().max().item() for x in (by_ids, turned))
print("expected: the embeddings of ids give the logits of the ids")
print(f"observed: off by {off:.2g}; turned round they give the same, turned round, to {blind:.0e}")
sys.exit(off > 1e-3)
