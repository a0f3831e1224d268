"""MRA attends to nothing where its CUDA kernel is missing, and does not say so.

Claims: none
Types: mra
Met by: everyone who runs MRA without the kernel: on a CPU, offline, without ninja
Seen in: transformers 5.23.0
Expected: another first token changes the logits elsewhere, or a missing kernel is an error
Observed: the logits change by 1.7 there and by 0 elsewhere
Cause: models/mra/modeling_mra.py, 363: `if mra_cuda_kernel is None: return
    torch.zeros_like(query)`. No warning is given where there is no CUDA (526). No law is broken,
    since it is the same everywhere.
Upstream: not found as an issue; the kernels' absence in tests is discussed in PR #20573 (closed)
    and #24513 (merged)
"""

import sys

import torch
from transformers import MraConfig, MraForMaskedLM

torch.manual_seed(0)
config = MraConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    initializer_range=0.3,
)
model = MraForMaskedLM(config).eval()
ids = torch.randint(3, 64, (1, 32))
other = ids.clone()
other[0, 0] = (ids[0, 0] + 1) % 64
with torch.no_grad():
    change = (model(other).logits - model(ids).logits)[0].abs().amax(-1)
print(
    "expected: another first token changes the logits elsewhere, or a missing kernel is an error"
)
print(
    f"observed: the logits change by {change[0]:.2g} there and by {change[1:].max():.2g} elsewhere"
)
sys.exit(not change[1:].any())
