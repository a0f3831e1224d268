"""Inkling misreads static caches.

Claims: C2, C3, C4, C5
Types: inkling_text, inkling2_text
Met by: whoever calls generate() with cache_implementation="static"
Seen in: transformers 5.23.0
Expected: generate() with a static cache sees the logits that it sees without
Observed: room for 7 tokens: logits off by 0.009, for 16: RuntimeError
Cause: models/inkling/modeling_inkling.py, 243: a static cache's `get_query_offset` gives the very
    tensor that counts what it holds, and `update` moves it on in place before the queries' places
    are made of it: they are too far by the length of the chunk. With `int(...)` around it the
    difference is gone within the window (5e-6). Where there is room for more than the window,
    masks of sliding layers are as wide as the room and biases as the window: an error.
    inkling2 has the same lines (models/inkling2/modeling_inkling2.py, 457 and 581). Nothing
    refuses the cache: `_can_compile_fullgraph = False` turns off compiling only.
Upstream: not found by searching for "Inkling static cache get_query_offset position bias"
"""

import sys

import torch
from transformers import InklingForCausalLM, InklingTextConfig

torch.manual_seed(0)
config = InklingTextConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    layer_types=["hybrid_sliding", "hybrid"],
    mlp_layer_types=["sparse", "sparse"],
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    swa_num_attention_heads=4,
    swa_num_key_value_heads=2,
    swa_head_dim=8,
    sliding_window_size=8,
    moe_intermediate_size=64,
    n_routed_experts=4,
    num_experts_per_tok=2,
    initializer_range=0.3,
    log_scaling_n_floor=None,
)
model = InklingForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 4))
given = dict(do_sample=False, output_logits=True, return_dict_in_generate=True, eos_token_id=None)
said = {}
for new in (3, 12):
    plain = model.generate(ids, max_new_tokens=new, **given).logits[1]
    try:
        static = model.generate(ids, max_new_tokens=new, cache_implementation="static", **given)
        said[new] = f"logits off by {(static.logits[1] - plain).abs().max().item():.2g}"
    except RuntimeError as error:
        said[new] = type(error).__name__
print("expected: generate() with a static cache sees the logits that it sees without")
print(f"observed: room for 7 tokens: {said[3]}, for 16: {said[12]}")
sys.exit(not all("e-" in what for what in said.values()))
