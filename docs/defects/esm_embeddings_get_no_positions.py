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
