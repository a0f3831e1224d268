"""Gemma 3n's gradients are NaN where a token's embedding is zero, as a new model's padding is.

Claims: G3
Types: gemma3n_text
Met by: whoever trains a Gemma 3n from its configuration on padded batches: all weights become NaN
    in the first step
Seen in: transformers 5.23.0, 5.24.0
Expected: finite gradients for a padded batch whose padding is ignored by mask and labels
Observed: NaN in the gradient of 5 of 5 blocks
Cause: models/gemma3n/modeling_gemma3n.py, 1693 and 1729: the streams are scaled by the root of
    a mean square, ``torch.mean(x**2) ** 0.5``, whose gradient is infinite where x is zero.
    The embedding's row of pad_token_id, 0, is zero until it is trained.
Fix: models/gemma3n/modeling_gemma3n.py, 1693 and 1729: the mean square is clamped at the least
    number above zero, below which the clamp has no gradient; where it is not zero nothing changes
Upstream: not found by searching for "gemma3n NaN gradients padding altup target_magnitude"
"""

import inspect
import sys
import textwrap

import torch
from transformers import Gemma3nForCausalLM, Gemma3nTextConfig
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextModel


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
    tiny = "clamp(min=torch.finfo(hidden_states_0.dtype).tiny)"
    change(
        Gemma3nTextModel.forward,
        *(
            (
                f"{square}, dim=-1, keepdim=True) ** 0.5",
                f"{square}, dim=-1, keepdim=True).{tiny} ** 0.5",
            )
            for square in ("torch.mean(hidden_states_0**2", "torch.mean(hidden_states[0] ** 2")
        ),
    )


if "--fixed" in sys.argv:
    fix()

KINDS = ["sliding", "full", "sliding", "sliding", "full"]

torch.manual_seed(0)
config = Gemma3nTextConfig(
    vocab_size=64,
    vocab_size_per_layer_input=64,
    hidden_size=32,
    hidden_size_per_layer_input=8,
    intermediate_size=64,
    num_hidden_layers=5,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    num_kv_shared_layers=2,
    layer_types=[f"{kind}_attention" for kind in KINDS],
    laurel_rank=4,
    pad_token_id=0,
)
model = Gemma3nForCausalLM(config)
ids = torch.tensor([[5, 6, 7, 8], [0, 0, 9, 10]])
labels = ids.where(ids > 0, -100)
model(ids, attention_mask=(ids > 0).long(), labels=labels, use_cache=False).loss.backward()
blocks = [
    any(bool(p.grad.isnan().any()) for p in block.parameters() if p.grad is not None)
    for block in model.model.layers
]
print("expected: finite gradients for a padded batch whose padding is ignored by mask and labels")
print(f"observed: NaN in the gradient of {sum(blocks)} of {len(blocks)} blocks")
sys.exit(any(blocks))
