"""T5 under flex attention takes batches of one row only.

Claims: C8 [flex_attention]
Types: t5, mt5, umt5
Met by: whoever sets attn_implementation="flex_attention" and has more than one prompt
Seen in: transformers 5.23.0, 5.24.0
Expected: flex attention takes batches of any size
Observed: 1 row: works; 2 rows: IndexError: index 1 is out of bounds for dimension 0 with size 1
Cause: integrations/flex_attention.py, 292, indexes the position bias by the row of the batch; T5's
    bias has one row (models/t5/modeling_t5.py, 338 and 346). Eager and sdpa broadcast it.
Fix: integrations/flex_attention.py, 292: the bias gets as many rows as the queries before it is
    indexed
Upstream: flex attention came as a side effect of PR #47014 (merged); the error not found by
    searching for "T5 flex_attention position_bias batch IndexError"
"""

import inspect
import sys
import textwrap

import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.integrations import flex_attention


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
    rows = "position_bias = position_bias.expand(query.shape[0], -1, -1, -1)"
    change(
        flex_attention.flex_attention_forward,
        (
            "\n    block_mask = None\n",
            f"\n    if position_bias is not None:\n        {rows}\n    block_mask = None\n",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = T5Config(vocab_size=64, d_model=64, d_kv=16, d_ff=64, num_layers=1, num_heads=4)
torch.compiler.set_stance("force_eager")  # it fails compiled too, after a minute
model = T5ForConditionalGeneration(config).eval()
model.set_attn_implementation("flex_attention")
ids = torch.randint(3, 64, (2, 6))
told = {}
for rows in (1, 2):
    try:
        with torch.no_grad():
            model(ids[:rows], decoder_input_ids=ids[:rows])
        told[rows] = "works"
    except Exception as error:
        told[rows] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
print("expected: flex attention takes batches of any size")
print(f"observed: 1 row: {told[1]}; 2 rows: {told[2]}")
sys.exit(told[2] != "works")
