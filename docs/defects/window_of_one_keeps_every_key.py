"""A cache with a sliding window of one token keeps every key, and tokens attend to them.

Claims: C2, C4, C5
Types: mistral
Met by: whoever sets sliding_window=1, in this type or another, and decodes with a cache
Seen in: transformers 5.23.0, 5.24.0
Expected: tokens read one by one with a cache give the logits of one pass
Observed: logits that are off by 5.6; with sliding_window=2 by 3e-06
Cause: cache_utils.py, 246: the layer keeps `keys[:, :, -sliding_window + 1 :]`, which is all of
    them for a window of one (`-0:`).
Fix: cache_utils.py, 246 and 301: the window's keys are counted from the front, which is right for
    none as well. `crop` needs the same where it goes back to the window
Upstream: not found by searching for "sliding_window=1 cache keeps all keys"
"""

import inspect
import sys
import textwrap

import torch
from transformers import DynamicCache, MistralConfig, MistralForCausalLM
from transformers.cache_utils import DynamicSlidingWindowLayer


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
    keep = "max(full_key_states.shape[-2] - self.sliding_window + 1, 0)"
    change(
        DynamicSlidingWindowLayer.update,
        (
            "full_key_states[:, :, -self.sliding_window + 1 :, :]",
            f"full_key_states[:, :, {keep} :, :]",
        ),
        (
            "full_value_states[:, :, -self.sliding_window + 1 :, :]",
            f"full_value_states[:, :, {keep} :, :]",
        ),
    )
    keep = "max(self.keys.shape[-2] - self.sliding_window + 1, 0)"
    change(
        DynamicSlidingWindowLayer.crop,
        (
            "self.keys = self.keys[:, :, -self.sliding_window + 1 :, :]\n"
            "            self.values = self.values[:, :, -self.sliding_window + 1 :, :]",
            f"start = {keep}\n            "
            "self.keys, self.values = self.keys[:, :, start:, :], self.values[:, :, start:, :]",
        ),
    )


if "--fixed" in sys.argv:
    fix()

arguments = inspect.signature(MistralForCausalLM.forward).parameters
keyword = "cache" if "cache" in arguments else "past_key_values"
ids = torch.arange(3, 9)[None]


def off(window):
    """How far the logits of tokens read one by one are from those of one pass."""
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=window,
        initializer_range=0.3,
    )
    model = MistralForCausalLM(config).eval()
    cache = DynamicCache(config=config)
    steps = [model(ids[:, i : i + 1], **{keyword: cache}).logits for i in range(ids.shape[1])]
    return (torch.cat(steps, 1) - model(ids).logits).abs().max().item()


with torch.no_grad():
    one, two = off(1), off(2)
print("expected: tokens read one by one with a cache give the logits of one pass")
print(f"observed: logits that are off by {one:.2g}; with sliding_window=2 by {two:.0e}")
sys.exit(one > 1e-3)
