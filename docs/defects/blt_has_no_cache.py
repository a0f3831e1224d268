import sys

import torch
from transformers import BltConfig, BltForCausalLM

torch.manual_seed(0)
part = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
)
config = BltConfig(
    vocab_size=64,
    encoder_hash_byte_group_vocab=64,
    patcher_config=part,
    encoder_config=part | {"hidden_size_global": 32},
    decoder_config=part | {"hidden_size_global": 32},
    global_config={key: part[key] for key in part if key != "vocab_size"},
)
model = BltForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 6))
told = "tokens"
try:
    model.generate(ids, max_new_tokens=2, do_sample=False)
except AttributeError as error:
    told = str(error)
print("expected: generate(), with the configuration's own use_cache=True, gives tokens")
print(f"observed: {told}")
sys.exit(told != "tokens")
