"""DeBERTa made or loaded in bfloat16 has biases in float32 and cannot run.

Claims: C10
Types: deberta
Met by: from_config() and from_pretrained() in bfloat16 or float16, asked for or saved so
Seen in: transformers 5.23.0
Expected: a model made with dtype=torch.bfloat16 is in bfloat16 and runs
Observed: q_bias, v_bias in float32; RuntimeError: expected scalar type Float but found BFloat16
Cause: `DisentangledSelfAttention` (models/deberta/modeling_deberta.py, 160) makes both biases with
    dtype=torch.float, and loading keeps the dtype in which a parameter was made
    (core_model_loading.py, 1783). With `model.to(torch.bfloat16)` after loading it runs.
Upstream: issue #35332 (closed); PR #35336 (open)
"""

import sys

import torch
from transformers import AutoModelForMaskedLM, DebertaConfig

config = DebertaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
)
model = AutoModelForMaskedLM.from_config(config, dtype=torch.bfloat16).eval()
kept = [name.split(".")[-1] for name, x in model.named_parameters() if x.dtype == torch.float32]
told = "runs"
try:
    model(torch.tensor([[5, 6, 7]]))
except RuntimeError as error:
    told = f"RuntimeError: {error}"
print("expected: a model made with dtype=torch.bfloat16 is in bfloat16 and runs")
print(f"observed: {', '.join(kept) or 'nothing'} in float32; {told}")
sys.exit(told != "runs")
