import sys

import torch
from transformers import Gemma4ForCausalLM, Gemma4TextConfig

torch.manual_seed(0)
config = Gemma4TextConfig(
    vocab_size=64,
    vocab_size_per_layer_input=64,
    hidden_size=32,
    hidden_size_per_layer_input=8,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    global_head_dim=8,
    num_kv_shared_layers=0,
)
model = Gemma4ForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 6))
told = []
for dtype in (torch.float32, torch.bfloat16, torch.float64):
    model.to(dtype)
    try:
        model(inputs_embeds=model.get_input_embeddings()(ids))
        told.append(f"{dtype}: taken")
    except RuntimeError as error:
        told.append(f"{dtype}: refused ({str(error)[86:152]}…)")
print("expected: embeddings from the model's own table are taken in every dtype")
print(f"observed: {'; '.join(told)}")
sys.exit(any("refused" in each for each in told))
