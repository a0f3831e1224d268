"""MRA cannot run in bfloat16 or float16.

Claims: C10
Types: mra
Met by: everyone who runs MRA in half precision, with its kernel or without
Seen in: transformers 5.23.0
Expected: a model in bfloat16 runs in bfloat16
Observed: float32 works, bfloat16 RuntimeError, float16 RuntimeError
Cause: models/mra/modeling_mra.py, 591: `MraSelfAttention.forward` takes queries, keys and values
    in float32 and never goes back, so the next linear layer gets float32. With `context_layer`
    taken back to the dtype of `hidden_states` the error is gone.
Upstream: not found by searching for "MRA model bfloat16 half precision mat1 and mat2 must have the
    same dtype"
"""

import sys

import torch
from transformers import MraConfig, MraForMaskedLM

torch.manual_seed(0)
config = MraConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
    block_per_row=1,
)
model = MraForMaskedLM(config).eval()
ids = torch.randint(3, 64, (1, 32))
said = {}
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    try:
        model.to(dtype)(ids)
        said[dtype] = "works"
    except RuntimeError as error:
        said[dtype] = type(error).__name__
print("expected: a model in bfloat16 runs in bfloat16")
print("observed: " + ", ".join(f"{str(dtype)[6:]} {what}" for dtype, what in said.items()))
sys.exit(said[torch.bfloat16] != "works")
