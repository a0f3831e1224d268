"""T5 under flex attention takes batches of one row only.

Claims: C8 [flex_attention]
Types: t5, mt5, umt5
Met by: whoever sets attn_implementation="flex_attention" and has more than one prompt
Seen in: transformers 5.23.0
Expected: flex attention takes batches of any size
Observed: 1 row: works; 2 rows: IndexError: index 1 is out of bounds for dimension 0 with size 1
Cause: integrations/flex_attention.py, 292, indexes the position bias by the row of the batch; T5's
    bias has one row (models/t5/modeling_t5.py, 338 and 346). Eager and sdpa broadcast it.
Upstream: flex attention came as a side effect of PR #47014 (merged); the error not found by
    searching for "T5 flex_attention position_bias batch IndexError"
"""

import sys

import torch
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(0)
config = T5Config(vocab_size=64, d_model=64, d_kv=16, d_ff=64, num_layers=1, num_heads=4)
torch.compiler.set_stance("force_eager")  # it fails compiled too, after a minute
model = T5ForConditionalGeneration(config).eval()
model.set_attn_implementation("flex_attention")
ids = torch.randint(3, 64, (2, 6))
told = {}
for rows in (1, 2):
    try:
        with torch.no_grad():
            model(ids[:rows], decoder_input_ids=ids[:rows])
        told[rows] = "works"
    except Exception as error:
        told[rows] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
print("expected: flex attention takes batches of any size")
print(f"observed: 1 row: {told[1]}; 2 rows: {told[2]}")
sys.exit(told[2] != "works")
