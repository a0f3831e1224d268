"""CTRL and GIT change the embeddings that they are given.

Claims: C9
Types: ctrl, git
Met by: whoever passes inputs_embeds twice, or asks for their gradient (which raises, being a leaf)
Seen in: transformers 5.23.0
Expected: inputs_embeds stay as they are: a second call gives the same logits
Observed: they are 32 times as large, and the second call is off by 0.38
Cause: models/ctrl/modeling_ctrl.py, 314: `inputs_embeds *= np.sqrt(self.d_model_size)`;
    models/git/modeling_git.py, 109: `embeddings += position_embeddings`, where `embeddings` is
    what was given.
Upstream: issue #47741 (closed) and PR #47742 (closed, not merged) name ctrl, git and five others
"""

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
