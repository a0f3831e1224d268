"""xLSTM in bfloat16 cannot read a chunk of 64 tokens unless it has a cache.

Claims: C10, G14
Types: xlstm
Met by: use_cache=False in bfloat16 with a prompt of chunk_size (64) tokens or more
Seen in: transformers 5.23.0, 5.24.0
Expected: logits for prompts of any length, with a cache or without
Observed: 63 tokens: works; 64: RuntimeError; 64 with a cache: works
Cause: `wrap_chunkwise_arbitrary_sequence_length` (models/xlstm/modeling_xlstm.py, 641) makes its
    first state in float32, and the gates that come of it are multiplied by values in bfloat16
    (146). A cache's state has the model's dtype. Given the keys' dtype the error is gone.
Fix: models/xlstm/modeling_xlstm.py, 647, 652 and 657: the first state has the keys' dtype
Upstream: not found by searching for "xLSTM bfloat16 expected m1 and m2 to have the same dtype
    chunkwise"; PR #47046 (open) leaves a fresh cache's state out, too
"""

import inspect
import sys
import textwrap

import torch
from transformers import xLSTMConfig, xLSTMForCausalLM
from transformers.models.xlstm import modeling_xlstm


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
    sizes = ("nh, dhqk, dhhv", "nh, dhqk", "nh, 1")
    lines = [f"torch.zeros(batch_size, {size}, device=key.device, dtype=" for size in sizes]
    change(
        modeling_xlstm.wrap_chunkwise_arbitrary_sequence_length,
        *((f"{line}torch.float32)", f"{line}key.dtype)") for line in lines),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = xLSTMConfig(vocab_size=64, hidden_size=128, num_heads=4, num_hidden_layers=2)
model = xLSTMForCausalLM(config).eval().to(torch.bfloat16)
ids = torch.randint(1, 64, (1, 64))


def result(n, use_cache):
    """What comes of the first n tokens."""
    try:
        with torch.no_grad():
            model(ids[:, :n], use_cache=use_cache)
    except RuntimeError as error:
        return type(error).__name__
    return "works"


short, long, cached = result(63, False), result(64, False), result(64, True)
print("expected: logits for prompts of any length, with a cache or without")
print(f"observed: 63 tokens: {short}; 64: {long}; 64 with a cache: {cached}")
sys.exit(long != "works")
