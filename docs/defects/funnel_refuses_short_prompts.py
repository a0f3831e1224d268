"""Funnel cannot read prompts of 1 to 4 tokens.

Claims: none
Types: funnel
Met by: whoever gives a prompt of a word or two
Seen in: transformers 5.23.0
Expected: logits for prompts of every length
Observed: prompts of [1, 2, 3, 4] tokens raise RuntimeError, the first: index 4 is out of bounds
    for dimension 0 with size 4
Cause: with relative_shift attention (the default) the third block's positions reach beyond their
    table of 4 n rows (models/funnel/modeling_funnel.py, 181), and for 3 or 4 tokens pooled
    positions and pooled cls mask have different lengths (406). With attention_type="factorized"
    the errors are gone.
Upstream: a remark in PR #7029 (2020) says that it "pools twice, so it needs a sequence length of
    4"; 4 fails too, and the documentation names no such limit; no issue found by searching for
    "funnel short sequence separate_cls truncate_seq"
"""

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
