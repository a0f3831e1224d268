import sys

import torch
from transformers import FunnelConfig, FunnelForMaskedLM

torch.manual_seed(0)
config = FunnelConfig(
    vocab_size=64,
    d_model=32,
    n_head=4,
    d_head=8,
    d_inner=64,
)
model = FunnelForMaskedLM(config).eval()
told = {}
for n in range(1, 8):
    try:
        model(torch.randint(3, 64, (1, n)))
        told[n] = ""
    except RuntimeError as error:
        told[n] = str(error).splitlines()[0]
refused = [n for n in told if told[n]]
print("expected: logits for prompts of every length")
print(f"observed: prompts of {refused} tokens raise RuntimeError, the first: {told[1]}")
sys.exit(bool(refused))
