"""YOSO reads padding whatever its attention_mask says.

Claims: C5, G2, G3, G13
Types: yoso
Met by: everyone who gives it a batch of texts of unlike lengths
Seen in: transformers 5.23.0, 5.24.0
Expected: a prompt has the same logits alone and beside padding that is masked
Observed: logits that are off by 1.7, and by 0 from those without a mask
Cause: `YosoSelfAttention.forward` (models/yoso/modeling_yoso.py, 356) expects an additive mask of
    0 and -10000 and makes `1.0 + attention_mask / 10000.0` of it, as whole numbers; `YosoModel`
    (684) passes on the mask of 1 and 0, both of which become 1. With `-10000.0 * (1 - mask)` given
    to `model.yoso.encoder` the difference is gone (0).
Fix: models/yoso/modeling_yoso.py, 356: the mask is taken for the one of 1 and 0 that `YosoModel`
    passes on, as the convolution above it does
Upstream: not found by searching for "YOSO attention_mask ignored padding"
"""

import inspect
import sys
import textwrap

import torch
from transformers import YosoConfig, YosoForMaskedLM
from transformers.models.yoso.modeling_yoso import YosoSelfAttention


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
    change(YosoSelfAttention.forward, ("attention_mask = 1.0 + attention_mask / 10000.0\n", "\n"))


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = YosoConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    initializer_range=0.2,
)
model = YosoForMaskedLM(config).eval()
ids, mask = torch.tensor([[5, 6, 7, 9, 9]]), torch.tensor([[1, 1, 1, 0, 0]])
with torch.no_grad():
    alone = model(ids[:, :3]).logits
    padded = model(ids, attention_mask=mask).logits[:, :3]
    plain = model(ids).logits[:, :3]
off, same = ((x - y).abs().max().item() for x, y in ((padded, alone), (padded, plain)))
print("expected: a prompt has the same logits alone and beside padding that is masked")
print(f"observed: logits that are off by {off:.2g}, and by {same:.2g} from those without a mask")
sys.exit(off > 1e-3)
