"""xLSTM rounds its state to bfloat16 between the parts of a long prompt, unless it has a cache.

Claims: C2, C6
Types: xlstm
Met by: use_cache=False with a prompt longer than max_inference_chunksize (16384)
Seen in: transformers 5.23.0, 5.24.0
Expected: a float32 model's logits are the same, read in one part or in two
Observed: off by 0.0088, with a cache by 3.3e-06
Cause: models/xlstm/modeling_xlstm.py, 1453: read in parts, the model makes itself a state by
    `xLSTMCache(config, max_batch_size)`, without dtype and device, and so in bfloat16 on the CPU.
    Given both, the difference is gone (3e-6), as with use_cache=True, where both are given.
Fix: models/xlstm/modeling_xlstm.py, 1453: device and dtype are given, as with use_cache=True
    (1440)
Upstream: not found by searching for "xLSTM max_inference_chunksize xLSTMCache dtype bfloat16"
"""

import inspect
import sys
import textwrap

import torch
from transformers import xLSTMConfig, xLSTMForCausalLM
from transformers.models.xlstm.modeling_xlstm import xLSTMModel


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
        xLSTMModel.forward,
        (
            "max_batch_size=hidden_states.shape[0])",
            "max_batch_size=hidden_states.shape[0], "
            "device=hidden_states.device, dtype=hidden_states.dtype)",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
sizes = {"vocab_size": 64, "hidden_size": 128, "num_heads": 4, "num_hidden_layers": 2}
model = xLSTMForCausalLM(xLSTMConfig(**sizes)).eval()
for weight in model.parameters():
    if weight.ndim == 2:
        torch.nn.init.normal_(weight, std=0.1)
ids = torch.randint(1, 64, (1, 16))
with torch.no_grad():
    whole = model(ids, use_cache=False).logits
    model.config.max_inference_chunksize = 8
    parts = model(ids, use_cache=False).logits
    cached = model(ids, use_cache=True).logits
off, beside = ((logits - whole).abs().max().item() for logits in (parts, cached))
print("expected: a float32 model's logits are the same, read in one part or in two")
print(f"observed: off by {off:.2g}, with a cache by {beside:.2g}")
sys.exit(off > 1e-3)
