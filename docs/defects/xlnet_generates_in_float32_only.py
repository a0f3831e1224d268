"""XLNet cannot generate in bfloat16 or float16.

Claims: none
Types: xlnet
Met by: generate() of a model in half precision
Seen in: transformers 5.23.0
Expected: a model that runs in bfloat16 generates in bfloat16
Observed: a pass: works; generate(): RuntimeError
Cause: models/xlnet/modeling_xlnet.py, 181, takes the encoded distances in float32 where there
    are two streams, as when generating; with one stream (259) they are cast. And
    `prepare_inputs_for_generation` (1257 and 1263) makes masks in torch.float, of which
    target_mapping is multiplied with the states. With both cast the error is gone.
Upstream: not found by searching for "XLNet generate bfloat16 target_mapping dtype"
"""

import sys

import torch
from transformers import XLNetConfig, XLNetLMHeadModel

torch.manual_seed(0)
config = XLNetConfig(vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=64)
model = XLNetLMHeadModel(config).eval().to(torch.bfloat16)
ids = torch.tensor([[11, 12, 13]])


def result(call):
    """What comes of a call."""
    try:
        call()
    except RuntimeError as error:
        return type(error).__name__
    return "works"


plain, generated = (
    result(lambda: model(ids)),
    result(lambda: model.generate(ids, max_new_tokens=1)),
)
print("expected: a model that runs in bfloat16 generates in bfloat16")
print(f"observed: a pass: {plain}; generate(): {generated}")
sys.exit(generated != "works")
