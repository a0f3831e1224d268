"""Doge under flex attention sees the tokens that follow, and padding.

Claims: C8
Types: doge
Met by: attn_implementation="flex_attention"
Seen in: transformers 5.23.0, 5.24.0
Expected: logits do not depend on later tokens, whatever computes the attention
Observed: changed by 0 under sdpa, by 11 under flex attention; the two are off by 7.7
Cause: models/doge/modeling_doge.py, 348: the causal mask, under flex attention a BlockMask, is
    left out of the dynamic mask, which then takes its place. Given as a 4-D mask of numbers it is
    kept: later tokens are not seen (0), and the two are off by 5e-6. Where `A` is not zero, as it
    is in fresh weights, heads have masks of their own, and the first one's is taken for all
    (integrations/flex_attention.py, 290): off by 5.3, with the head's own by 4e-6.
Fix: models/doge/modeling_doge.py, 348: a BlockMask is made a mask of booleans, which the dynamic
    mask then takes in; integrations/flex_attention.py, 290: a mask of numbers is read by head
Upstream: not found by searching for "Doge flex_attention BlockMask prepare_dynamic_mask causal"
"""

import inspect
import sys
import textwrap

import torch
from torch.nn.attention.flex_attention import create_mask
from transformers import DogeConfig, DogeForCausalLM
from transformers.integrations import flex_attention
from transformers.models.doge import modeling_doge


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
    modeling_doge.create_mask = create_mask
    change(
        modeling_doge.DogeAttention.prepare_dynamic_mask,
        (
            "if attention_mask is not None and not isinstance(attention_mask, BlockMask):",
            "if isinstance(attention_mask, BlockMask):\n"
            "        rows, sizes = attn_mask.shape[0], attn_mask.shape[2:]\n"
            "        attention_mask = create_mask(\n"
            "            attention_mask.mask_mod, rows, None, *sizes, device=attn_mask.device)\n"
            "    if attention_mask is not None:",
        ),
    )
    change(
        flex_attention.flex_attention_forward,
        (
            "score_mask = score_mask[:, :, :, : key.shape[-2]]",
            "score_mask = score_mask[:, :, :, : key.shape[-2]].expand(-1, query.shape[1], -1, -1)",
        ),
        ("score_mask[batch_idx][0][q_idx]", "score_mask[batch_idx][head_idx][q_idx]"),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = DogeConfig(
    vocab_size=64,
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    initializer_range=0.3,
)
model = DogeForCausalLM(config).eval()
ids = torch.arange(1, 9)[None]
other = torch.cat([ids[:, :4], ids[:, 4:] + 9], dim=1)
seen, rows = {}, {}
for name in ("sdpa", "flex_attention"):
    model.set_attn_implementation(name)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        rows[name] = model(ids).logits
        seen[name] = (model(other).logits - rows[name])[:, :4].abs().max().item()
off = (rows["sdpa"] - rows["flex_attention"]).abs().max().item()
print("expected: logits do not depend on later tokens, whatever computes the attention")
print(
    f"observed: changed by {seen['sdpa']:.2g} under sdpa, by {seen['flex_attention']:.2g} under "
    f"flex attention; the two are off by {off:.2g}"
)
sys.exit(seen["flex_attention"] > 1e-3)
