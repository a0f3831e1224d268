"""Moshi's cache has a sliding window and its mask has none.

Claims: C2, C4, C5, C8, A7, G4, G5, G6, G7
Types: moshi
Met by: whoever goes beyond sliding_window tokens (3000 by default), or sets a smaller one
Seen in: transformers 5.23.0, 5.24.0
Expected: cached decoding gives the logits of one pass, within the window and beyond
Observed: within the window off by 2e-06, beyond it by 1.8
Cause: models/moshi/modeling_moshi.py, 775: `MoshiModel` makes its mask by `create_causal_mask`,
    without a window, while `DynamicCache(config)` forgets what is beyond `config.sliding_window`.
    With a window longer than the text the difference is gone (1e-6).
Fix: models/moshi/modeling_moshi.py, 775: the mask has the window of the cache, where the
    configuration has one
Upstream: not found by searching for "Moshi sliding window attention mask create_causal_mask"; PR
    #39251 (open) sees a sliding cache of Moshi's behave differently
"""

import inspect
import sys
import textwrap

import torch
from transformers import MoshiConfig, MoshiForCausalLM
from transformers.masking_utils import create_sliding_window_causal_mask
from transformers.models.moshi import modeling_moshi


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
    modeling_moshi.create_sliding_window_causal_mask = create_sliding_window_causal_mask
    change(
        modeling_moshi.MoshiModel.forward,
        (
            "    causal_mask = create_causal_mask(",
            "    make_mask = create_causal_mask\n"
            "    if self.config.sliding_window is not None:\n"
            "        make_mask = create_sliding_window_causal_mask\n"
            "    causal_mask = make_mask(",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = MoshiConfig(
    vocab_size=64,
    hidden_size=32,
    ffn_dim=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    sliding_window=8,
    initializer_range=0.3,
)
model = MoshiForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
ids = torch.randint(3, 64, (1, 12))


def off(length):
    """How far the logits of the last of `length` tokens are from one pass, on a cache."""
    cache = model(ids[:, : length - 1], use_cache=True)[keyword]
    last = model(ids[:, length - 1 : length], **{keyword: cache}).logits[0, -1]
    return (last - model(ids[:, :length], use_cache=False).logits[0, -1]).abs().max().item()


with torch.no_grad():
    within, beyond = off(8), off(12)
print("expected: cached decoding gives the logits of one pass, within the window and beyond")
print(f"observed: within the window off by {within:.0e}, beyond it by {beyond:.2g}")
sys.exit(beyond > 1e-3)
