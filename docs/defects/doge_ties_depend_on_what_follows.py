"""Doge's states of a prompt that repeats a token depend on the tokens that follow.

Claims: C1, C2, C4, C5, C6, C8, A7, G1, G2, G3, G5, G6, G7, G13
Types: doge
Met by: everyone whose text is longer than keep_window_size (2048 by default) and repeats a token
Seen in: transformers 5.23.0, 5.24.0
Expected: a prefix has the same logits whatever follows it, also if it repeats a token
Observed: off by 0 if no token is repeated, by 0.51 if some are
Cause: models/doge/modeling_doge.py, 357: `torch.topk` keeps the keys of the largest dt_states. In
    the first layer these depend on the token alone, so equal tokens are tied, and which of them
    topk keeps depends on how many keys there are, those that are masked included.
Fix: models/doge/modeling_doge.py, 357: a stable sort keeps the first of equal keys, however many
    follow
Upstream: not found by searching for "Doge dynamic mask attention topk keep_window_size ties
    causal"; PR #48821 (merged) fixed another way for this mask to let the future through
"""

import inspect
import sys
import textwrap

import torch
from transformers import DogeConfig, DogeForCausalLM
from transformers.models.doge.modeling_doge import DogeAttention


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
        DogeAttention.prepare_dynamic_mask,
        (
            "torch.topk(attn_mask, keep_window_size, dim=-1, largest=True, sorted=False).indices",
            "torch.sort(attn_mask, dim=-1, descending=True, stable=True).indices"
            "[..., :keep_window_size]",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = DogeConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    keep_window_size=8,
    initializer_range=0.3,
)
model = DogeForCausalLM(config).eval()
for layer in model.model.layers:  # zero at initialisation, when all keys are tied
    torch.nn.init.normal_(layer.self_attn.A)


def off(ids):
    """How far the logits of the first 16 tokens move when 8 more follow."""
    return (model(ids).logits[:, :16] - model(ids[:, :16]).logits).abs().max().item()


with torch.no_grad():
    distinct = max(off(torch.randperm(64)[None, :24]) for _ in range(20))
    repeated = max(off(torch.randint(64, (1, 24))) for _ in range(20))
print(
    "expected: a prefix has the same logits whatever follows it, whether or not it repeats a token"
)
print(f"observed: off by {distinct:.2g} if no token is repeated, by {repeated:.2g} if some are")
sys.exit(repeated > 1e-3)
