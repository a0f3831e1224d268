"""Kosmos-2.5 takes position_ids of one layout in memory only, and no row for a whole batch.

Claims: A5, A6, A7, B4, C5, C6, C8
Types: kosmos-2.5
Met by: whoever passes position_ids that are expanded or sliced, or one row for a batch
Seen in: transformers 5.23.0, 5.24.0
Expected: the same logits for the same positions: off by 0
Observed: RuntimeError: view size is not compatible with input tensor's size and stride
Cause: models/kosmos2_5/modeling_kosmos2_5.py, 661: rows of the table are selected by
    `position_ids.view(-1)`, which copies nothing, and get the shape of the ids
Fix: models/kosmos2_5/modeling_kosmos2_5.py, 661: the table is indexed by the positions
Upstream: not found by searching for "Kosmos2_5 position_ids view size is not compatible"
"""

import inspect
import sys
import textwrap

import torch
from transformers import Kosmos2_5Config, Kosmos2_5ForConditionalGeneration, logging
from transformers.models.kosmos2_5.modeling_kosmos2_5 import (
    Kosmos2_5TextSinusoidalPositionalEmbedding,
)


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
    change(
        Kosmos2_5TextSinusoidalPositionalEmbedding.forward,
        (
            "self.weights.index_select(0, position_ids.view(-1))"
            ".view(bsz, seq_len, self.weights.shape[-1]).detach()",
            "self.weights[position_ids].detach()",
        ),
    )


if "--fixed" in sys.argv:
    fix()

logging.set_verbosity_error()
torch.manual_seed(0)
text = {"vocab_size": 64, "embed_dim": 32, "ffn_dim": 64, "layers": 2, "attention_heads": 4}
vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 8}
vision |= {"num_attention_heads": 4, "patch_embed_hidden_size": 32}
config = Kosmos2_5Config(text_config=text | {"init_std": 0.3}, vision_config=vision)
model = Kosmos2_5ForConditionalGeneration(config).eval()
ids, row = torch.arange(3, 13).view(2, 5), torch.arange(2, 7)[None]
with torch.no_grad():
    expected = model(input_ids=ids, position_ids=row.repeat(2, 1)).logits
    try:
        again = [
            model(input_ids=ids, position_ids=each).logits for each in (row.expand(2, 5), row)
        ]
        off = max((each - expected).abs().max().item() for each in again)
        observed = f"off by {off:.2g}"
    except RuntimeError as error:
        off, observed = float("inf"), f"RuntimeError: {error}"
print("expected: the same logits for the same positions: off by 0")
print(f"observed: {observed}")
sys.exit(off > 1e-4)
