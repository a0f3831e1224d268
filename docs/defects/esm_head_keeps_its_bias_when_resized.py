"""ESM with room for new tokens does not run: the bias of its head keeps the old size.

Claims: C10
Types: esm
Met by: whoever adds tokens to an ESM for masked tokens (resize_token_embeddings)
Seen in: transformers 5.23.0, 5.24.0
Expected: logits for 36 tokens
Observed: RuntimeError: "The size of tensor a (36) must match the size of tensor b (33)"
Cause: models/esm/modeling_esm.py, 876: the head adds a bias that is its own parameter and not the
    one of its linear layer, which alone is resized (modeling_utils.py, 2630 in 5.24)
Fix: models/esm/modeling_esm.py, 813: a resized head pads its bias, too
Upstream: not found by searching for "ESM resize_token_embeddings lm_head bias size mismatch"; #851
    was the same in BERT
"""

import sys

import torch
from torch.nn.functional import pad
from transformers import EsmConfig, EsmForMaskedLM, PreTrainedModel


def fix():
    """Apply the fix to transformers as it is installed."""

    def resized(self, *arguments, **settings):
        table = PreTrainedModel.resize_token_embeddings(self, *arguments, **settings)
        bias = self.lm_head.bias
        bias.data = pad(bias.data, (0, table.num_embeddings - len(bias)))
        return table

    EsmForMaskedLM.resize_token_embeddings = resized


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
config = EsmConfig(vocab_size=33, num_attention_heads=4, pad_token_id=1, mask_token_id=32, **sizes)
model = EsmForMaskedLM(config).eval()
ids = torch.tensor([[4, 5, 6, 7]])
model.resize_token_embeddings(36)
print("expected: logits for 36 tokens")
try:
    with torch.no_grad():
        observed = f"logits for {model(ids).logits.shape[-1]} tokens"
except RuntimeError as error:
    observed = str(error)
print(f"observed: {observed}")
sys.exit(observed != "logits for 36 tokens")
