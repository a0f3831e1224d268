"""BLT's cached steps see neither the bytes before them nor earlier patches.

Claims: none
Types: blt
Met by: everyone who calls generate() with a cache, once blt_has_no_cache.py is out of the way
Seen in: transformers 5.23.0
Expected: the last token on a cache of the others gives the logits of one pass
Observed: logits that are off by 2.7
Cause: the cache holds what the local encoder and decoder attend to; all else in `BltModel.forward`
    (models/blt/modeling_blt.py, 1167) begins anew with the bytes at hand: their hashes
    (1197, with those before them in one pass), the patches that they are cut into (1206), and the
    global transformer, which is given `past_key_values=None` and positions from 0 (1263). Here a
    step sees 2 patches of 10.
Fix: none, because it takes a cache for the global transformer and a record of the bytes and
    patches before, which is a design and not a line; blt_has_no_cache.py shows generation without
    a cache, which is right
Upstream: PR #42188 (merged in 2025) gave the local parts a cache and leaves one for the global
    transformer to the future; PR #42685 (merged) had made use_cache=False the default, because
    cached generation differed; in 5.23.0 the default is True again
"""

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
    initializer_range=0.2,
)
config = BltConfig(
    vocab_size=64,
    encoder_hash_byte_group_vocab=64,
    patcher_config=part,
    encoder_config=part | {"hidden_size_global": 32},
    decoder_config=part | {"hidden_size_global": 32},
    global_config={key: part[key] for key in part if key != "vocab_size"},
    initializer_range=0.2,
)
config.num_hidden_layers = 1  # without which no cache can be made: blt_has_no_cache.py
model = BltForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 9))
with torch.no_grad():
    whole = model(ids, use_cache=False).logits[0, -1]
    cache = model(ids[:, :-1], use_cache=True).past_key_values
    step = model(ids[:, -1:], past_key_values=cache).logits[0, -1]
off = (step - whole).abs().max().item()
print("expected: the last token on a cache of the others gives the logits of one pass")
print(f"observed: logits that are off by {off:.2g}")
sys.exit(off > 1e-3)
