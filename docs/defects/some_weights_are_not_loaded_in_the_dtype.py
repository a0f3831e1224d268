"""DeBERTa, XLNet and Reformer loaded in bfloat16 have weights in float32 and cannot run.

Claims: C10
Types: deberta, xlnet, reformer
Met by: from_pretrained() in bfloat16 or float16, asked for or saved so; DeBERTa by from_config()
    as well
Seen in: transformers 5.23.0
Expected: a model made or loaded with dtype=torch.bfloat16 is in bfloat16 and runs
Observed: in float32: DeBERTa made: 2 of 22 weights, RuntimeError; DeBERTa: 2 of 22, RuntimeError;
    XLNet: 19 of 37, RuntimeError; Reformer: 2 of 76, RuntimeError
Cause: loading keeps the dtype in which a weight was made (core_model_loading.py, 1783), and these
    are made in float32 whatever dtype is asked for: two biases by dtype=torch.float
    (models/deberta/modeling_deberta.py, 160), XLNet's weights by `torch.FloatTensor`
    (models/xlnet/modeling_xlnet.py, 53), two of Reformer's by dtype=torch.float32
    (models/reformer/modeling_reformer.py, 220). Without those dtypes, and with `torch.empty`,
    they are in bfloat16. `model.to(torch.bfloat16)` after loading helps.
Upstream: DeBERTa: issue #35332 (closed), PR #35336 (open). The others: not found by searching for
    "XLNet from_pretrained bfloat16 torch.FloatTensor parameters stay float32" and
    "core_model_loading empty_param dtype bfloat16"
"""

import sys
import tempfile

import torch
from transformers import (
    AutoModelForMaskedLM,
    DebertaConfig,
    ReformerConfig,
    ReformerModelWithLMHead,
    XLNetConfig,
    XLNetLMHeadModel,
)

sizes = {"vocab_size": 64, "hidden_size": 32, "num_attention_heads": 4}
deberta = AutoModelForMaskedLM.from_config(
    DebertaConfig(**sizes, num_hidden_layers=1, intermediate_size=64)
)
xlnet = XLNetLMHeadModel(XLNetConfig(vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=64))
axes = {"axial_pos_shape": (8, 8), "axial_pos_embds_dim": (8, 24)}
reformer = ReformerModelWithLMHead(ReformerConfig(**sizes, is_decoder=True, **axes))
made = AutoModelForMaskedLM.from_config(deberta.config, dtype=torch.bfloat16)
models = {"DeBERTa made": made}
for name, fresh in ("DeBERTa", deberta), ("XLNet", xlnet), ("Reformer", reformer):
    with tempfile.TemporaryDirectory() as folder:
        fresh.save_pretrained(folder)
        models[name] = type(fresh).from_pretrained(folder, dtype=torch.bfloat16)
told = []
for name, model in models.items():
    dtypes = [weight.dtype for weight in model.parameters()]
    try:
        model(torch.tensor([[5, 6, 7]]))
        said = "runs"
    except RuntimeError as error:
        said = type(error).__name__
    told.append(f"{name}: {dtypes.count(torch.float32)} of {len(dtypes)} weights, {said}")
print("expected: a model made or loaded with dtype=torch.bfloat16 is in bfloat16 and runs")
print(f"observed: in float32: {'; '.join(told)}")
sys.exit(any(not each.endswith("runs") for each in told))
