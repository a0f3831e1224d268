import sys

import torch
from transformers import CTRLConfig, CTRLLMHeadModel

torch.manual_seed(0)
config = CTRLConfig(vocab_size=64, n_embd=32, dff=64, n_layer=2, n_head=4, n_positions=16)
model = CTRLLMHeadModel(config).eval()
ids = torch.randint(3, 64, (1, 6))
with torch.no_grad():
    embeddings = model.get_input_embeddings()(ids)
    before = embeddings.clone()
    first, second = (model(inputs_embeds=embeddings).logits for _ in range(2))
factor = (embeddings / before).mean().item()
off = (second - first).abs().max().item()
print("expected: inputs_embeds stay as they are: a second call gives the same logits")
print(f"observed: they are {factor:.0f} times as large, and the second call is off by {off:.2g}")
sys.exit(not torch.equal(embeddings, before))
