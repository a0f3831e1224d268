"""MRA cannot run in bfloat16 or float16.

Claims: C10, G14
Types: mra
Met by: everyone who runs MRA in half precision, with its kernel or without
Seen in: transformers 5.23.0, 5.24.0
Expected: a model in bfloat16 runs in bfloat16
Observed: float32 works, bfloat16 RuntimeError, float16 RuntimeError
Cause: models/mra/modeling_mra.py, 591: `MraSelfAttention.forward` takes queries, keys and values
    in float32 and never goes back, so the next linear layer gets float32. With `context_layer`
    taken back to the dtype of `hidden_states` the error is gone.
Fix: models/mra/modeling_mra.py, 609: what comes back is taken to the dtype of `hidden_states`
Upstream: not found by searching for "MRA model bfloat16 half precision mat1 and mat2 must have the
    same dtype"
"""

import inspect
import sys
import textwrap

import torch
from transformers import MraConfig, MraForMaskedLM
from transformers.models.mra.modeling_mra import MraSelfAttention


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
        MraSelfAttention.forward,
        (
            "context_layer.view(*new_context_layer_shape)",
            "context_layer.view(*new_context_layer_shape).to(hidden_states.dtype)",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = MraConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
    block_per_row=1,
)
model = MraForMaskedLM(config).eval()
ids = torch.randint(3, 64, (1, 32))
said = {}
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    try:
        model.to(dtype)(ids)
        said[dtype] = "works"
    except RuntimeError as error:
        said[dtype] = type(error).__name__
print("expected: a model in bfloat16 runs in bfloat16")
print("observed: " + ", ".join(f"{str(dtype)[6:]} {what}" for dtype, what in said.items()))
sys.exit(said[torch.bfloat16] != "works")
