"""XLNet and Reformer loaded in bfloat16 have weights in float32 and cannot run.

Claims: C10
Types: xlnet, reformer
Met by: from_pretrained() in bfloat16 or float16, asked for or saved so
Seen in: transformers 5.23.0
Expected: a model loaded with dtype=torch.bfloat16 is in bfloat16 and runs
Observed: XLNet: 19 of 37 parameters in float32, RuntimeError; Reformer: 2 of 76, RuntimeError
Cause: models/xlnet/modeling_xlnet.py, 53, makes its parameters by `torch.FloatTensor` and
    models/reformer/modeling_reformer.py, 220, by dtype=torch.float32; core_model_loading.py, 1783,
    keeps the dtype in which a parameter was made. With `torch.empty` and without the dtype the
    parameters are in bfloat16. `model.to(torch.bfloat16)` after loading helps.
Upstream: not found by searching for "XLNet from_pretrained bfloat16 torch.FloatTensor parameters
    stay float32" and "core_model_loading empty_param dtype bfloat16"
"""

import sys
import tempfile

import torch
from transformers import ReformerConfig, ReformerModelWithLMHead, XLNetConfig, XLNetLMHeadModel

axes = {"axial_pos_shape": (8, 8), "axial_pos_embds_dim": (8, 24)}
xlnet = XLNetConfig(vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=64)
reformer = ReformerConfig(vocab_size=64, hidden_size=32, is_decoder=True, **axes)
found = []
for made, config in (XLNetLMHeadModel, xlnet), (ReformerModelWithLMHead, reformer):
    with tempfile.TemporaryDirectory() as folder:
        made(config).save_pretrained(folder)
        model = made.from_pretrained(folder, dtype=torch.bfloat16)
    dtypes = [weight.dtype for weight in model.parameters()]
    try:
        model(torch.tensor([[1, 2, 3]]))
        said = "runs"
    except RuntimeError as error:
        said = type(error).__name__
    found.append((f"{dtypes.count(torch.float32)} of {len(dtypes)}", said))
print("expected: a model loaded with dtype=torch.bfloat16 is in bfloat16 and runs")
(first, said), (second, too) = found
print(f"observed: XLNet: {first} parameters in float32, {said}; Reformer: {second}, {too}")
sys.exit(said != "runs" or too != "runs")
