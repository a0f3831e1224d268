"""Gemma and Gemma 2 keep their causal mask under use_bidirectional_attention.

Claims: A6, C4, C5, C8
Types: gemma, gemma2
Met by: whoever sets use_bidirectional_attention, as for embedding models: Gemma under eager
    attention or in a padded batch, Gemma 2 wherever masks are made (it does not take sdpa)
Seen in: transformers 5.23.0, 5.24.0
Expected: every position sees all tokens, whatever computes the attention and with padding too
Observed: what the second token's logits change by with the last token: gemma sdpa 0.19, gemma
    eager 0, gemma sdpa and padding 0, gemma2 eager 0
Cause: the field reaches `self.is_causal` of the attention modules only (models/gemma2/
    modeling_gemma2.py, 223), which counts where there is no mask. The masks are made by
    `create_causal_mask` (431; models/gemma/modeling_gemma.py, 402), which heeds
    `config.is_causal` (masking_utils.py, 954), and nothing sets that. With
    `config.is_causal = False` all four change, by 0.19 to 0.25.
Fix: models/gemma/configuration_gemma.py, 97, and models/gemma2/configuration_gemma2.py, 100:
    `is_causal` is set as `Gemma4TextConfig` sets it (186)
Upstream: issue #46077 (closed) is the same defect of Gemma 4, PR #46079 (merged) its fix by that
    field; of Gemma and Gemma 2 not found by searching for "gemma2 use_bidirectional_attention
    eager causal mask"
"""

import inspect
import sys
import textwrap

import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GemmaConfig


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
    line = "super().__post_init__(**kwargs)"
    for config in (GemmaConfig, Gemma2Config):
        more = "if self.use_bidirectional_attention:\n        self.is_causal = False"
        change(config.__post_init__, (line, f"{line}\n    {more}"))


if "--fixed" in sys.argv:
    fix()

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "use_bidirectional_attention": True,
}
ids = torch.arange(3, 9)[None]
altered = torch.cat([ids[:, :-1], ids[:, -1:] + 9], dim=1)
padding = torch.tensor([[0, 1, 1, 1, 1, 1]])
seen = {}
for kind, how, mask in (
    (GemmaConfig, "sdpa", None),
    (GemmaConfig, "eager", None),
    (GemmaConfig, "sdpa", padding),
    (Gemma2Config, "eager", None),
):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(kind(**SIZES), attn_implementation=how).eval()
    with torch.no_grad():
        one, other = (model(x, attention_mask=mask).logits[0, 1] for x in (ids, altered))
    name = f"{kind.model_type} {how}" + (" and padding" if mask is not None else "")
    seen[name] = float((one - other).norm() / one.norm())
print("expected: every position sees all tokens, whatever computes the attention")
print(f"observed: {', '.join(f'{name} {change:.2g}' for name, change in seen.items())}")
sys.exit(min(seen.values()) < 1e-3)
