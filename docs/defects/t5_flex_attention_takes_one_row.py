import sys

import torch
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(0)
config = T5Config(vocab_size=64, d_model=64, d_kv=16, d_ff=64, num_layers=1, num_heads=4)
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
