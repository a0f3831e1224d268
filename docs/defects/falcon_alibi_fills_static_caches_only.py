"""Falcon with alibi cannot read a prompt that does not fill its static cache.

Claims: C2, C3, C4, C5
Types: falcon
Met by: whoever calls generate() with cache_implementation="static" on a Falcon with alibi=True
Seen in: transformers 5.23.0, 5.24.0
Expected: a prompt of 6 tokens in a static cache with room for 8 gives the logits of one pass
Observed: a RuntimeError, as tensors of sizes 8 and 6 do not match; with room for 6 it is right
Cause: models/falcon/modeling_falcon.py, 748: the alibi bias is built from the prompt's own mask,
    so it has as many columns as the prompt; the causal mask has as many as the cache.
Fix: models/falcon/modeling_falcon.py, 773: the bias is padded to the mask's columns, which are
    masked there
Upstream: not found by searching for "falcon alibi static cache size of tensor must match";
    keras-hub had the same (https://github.com/keras-team/keras-hub/issues/2861)
"""

import inspect
import sys
import textwrap

import torch
from transformers import FalconConfig, FalconForCausalLM, StaticCache
from transformers.models.falcon.modeling_falcon import FalconModel


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
    line = "alibi = alibi.reshape(batch_size, -1, *alibi.shape[1:])"
    room = "(0, causal_mask.shape[-1] - alibi.shape[-1])"
    change(
        FalconModel.forward,
        (line, f"{line}\n        alibi = torch.nn.functional.pad(alibi, {room})"),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = FalconConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    alibi=True,
    initializer_range=0.3,
)
model = FalconForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
ids = torch.randint(3, 64, (1, 6))


def read(room):
    """What comes of the prompt in a static cache for ``room`` tokens; whether it is right."""
    try:
        cache = StaticCache(config=config, max_cache_len=room)
        off = (model(ids, **{keyword: cache}).logits - plain).abs().max().item()
    except RuntimeError as error:
        return f"RuntimeError ({error})", False
    return f"off by {off:.0e}", off < 1e-3


with torch.no_grad():
    plain = model(ids, use_cache=False).logits
    (full, _), (roomy, right) = read(6), read(8)
print(
    "expected: a prompt of 6 tokens in a static cache with room for 8 gives the logits of one pass"
)
print(f"observed: a {roomy}; with room for 6 it is {full}")
sys.exit(not right)
