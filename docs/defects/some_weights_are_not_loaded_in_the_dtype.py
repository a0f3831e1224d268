"""DeBERTa, XLNet and Reformer loaded in bfloat16 have weights in float32 and cannot run.

Claims: C10, G14
Types: deberta, xlnet, reformer
Met by: from_pretrained() in bfloat16 or float16, asked for or saved so; DeBERTa by from_config()
    as well
Seen in: transformers 5.23.0, 5.24.0
Expected: a model made or loaded with dtype=torch.bfloat16 is in bfloat16 and runs
Observed: in float32: DeBERTa made: 2 of 22 weights, RuntimeError; DeBERTa: 2 of 22, RuntimeError;
    XLNet: 19 of 37, RuntimeError; Reformer: 2 of 76, RuntimeError
Cause: loading keeps the dtype in which a weight was made (core_model_loading.py, 1783), and these
    are made in float32 whatever dtype is asked for: two biases by dtype=torch.float
    (models/deberta/modeling_deberta.py, 160), XLNet's weights by `torch.FloatTensor`
    (models/xlnet/modeling_xlnet.py, 53), two of Reformer's by dtype=torch.float32
    (models/reformer/modeling_reformer.py, 220). Without those dtypes, and with `torch.empty`,
    they are in bfloat16. `model.to(torch.bfloat16)` after loading helps.
Fix: models/deberta/modeling_deberta.py, 160, models/xlnet/modeling_xlnet.py, 53, and
    models/reformer/modeling_reformer.py, 220: weights are made in the default dtype, which loading
    sets
Upstream: DeBERTa: issue #35332 (closed), PR #35336 (open). The others: not found by searching for
    "XLNet from_pretrained bfloat16 torch.FloatTensor parameters stay float32" and
    "core_model_loading empty_param dtype bfloat16"
"""

import inspect
import sys
import tempfile
import textwrap

import torch
from transformers import (
    AutoModelForMaskedLM,
    DebertaConfig,
    ReformerConfig,
    ReformerModelWithLMHead,
    XLNetConfig,
    XLNetLMHeadModel,
)
from transformers.models.deberta import modeling_deberta
from transformers.models.reformer import modeling_reformer
from transformers.models.xlnet import modeling_xlnet


def change(function, *lines):
    """Replace an old line of a function's source by a new one, for each pair."""
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in lines:
        assert source.count(old) == 1, f"transformers has no single line {old!r}"
        source = source.replace(old, new)
    body = "def " + source.partition("def ")[2]  # its decorators stay as they are
    cells = function.__code__.co_freevars
    body = f"def scope({', '.join(cells)}):\n{textwrap.indent(body, '    ')}"
    exec(f"{body}\n    return {function.__name__}", function.__globals__, made := {})
    function.__code__ = made["scope"](*cells).__code__


def fix():
    """Apply the fix to transformers as it is installed."""
    biases = [f"self.{x}_bias = nn.Parameter(torch.zeros((self.all_head_size)" for x in "qv"]
    change(
        modeling_deberta.DisentangledSelfAttention.__init__,
        *((f"{bias}, dtype=torch.float))", f"{bias}))") for bias in biases),
    )
    weights = ["q", "k", "v", "o", "r", "r_r_bias", "r_s_bias", "r_w_bias", "seg_embed"]
    for kind, names in (("RelativeAttention", weights), ("Model", ["mask_emb"])):
        lines = [f"self.{name} = nn.Parameter(torch." for name in names]
        change(
            getattr(modeling_xlnet, f"XLNet{kind}").__init__,
            *((f"{line}FloatTensor(", f"{line}empty(") for line in lines),
        )
    change(
        modeling_reformer.AxialPositionEmbeddings.__init__,
        ("torch.ones(ax_shape, dtype=torch.float32)", "torch.ones(ax_shape)"),
    )


if "--fixed" in sys.argv:
    fix()

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
