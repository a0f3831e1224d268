"""PaliGemma without token_type_ids is causal under eager attention and sees the future under sdpa.

Claims: A7, C1, C2, C4, C5, C6, C8, G1, G2, G3, G6, G7
Types: paligemma
Met by: whoever gives PaliGemma a prompt that its processor did not make, as ids alone
Seen in: transformers 5.23.0, 5.24.0
Expected: the same logits whatever computes the attention, and with padding too
Observed: with the last token the second one's logits change by as much as they are under sdpa, and
    by 0 under eager attention or with padding
Cause: models/paligemma/modeling_paligemma.py, 246: without token types the mask is causal, and
    sdpa gets none in its place, so that `is_causal` of the attention modules decides; it is False,
    as the type sets `use_bidirectional_attention` (configuration_paligemma.py, 92) for its prefix
Fix: models/paligemma/modeling_paligemma.py, 246: the causal mask is always made
Upstream: not found by searching for "PaliGemma sdpa eager token_type_ids is_causal"; issue #30993
    is about prompts with token types
"""

import sys

import torch
from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration
from transformers.models.paligemma import modeling_paligemma


def fix():
    """Apply the fix to transformers as it is installed."""
    make = modeling_paligemma.create_causal_mask
    modeling_paligemma.create_causal_mask = lambda **named: make(
        **named, allow_is_causal_skip=False
    )


if "--fixed" in sys.argv:
    fix()

sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
text = sizes | heads | {"model_type": "gemma", "vocab_size": 64, "initializer_range": 0.3}
vision = sizes | {"num_attention_heads": 4, "image_size": 28, "patch_size": 14}
vision |= {"model_type": "siglip_vision_model"}
widths = {"projection_dim": 32, "hidden_size": 32, "vocab_size": 64, "image_token_index": 60}
ids = torch.arange(3, 9)[None]
altered = torch.cat([ids[:, :-1], ids[:, -1:] + 9], dim=1)
padding = torch.tensor([[0, 1, 1, 1, 1, 1]])
seen = {}
for how, mask in (("sdpa", None), ("eager", None), ("sdpa", padding)):
    torch.manual_seed(0)
    config = PaliGemmaConfig(text_config=dict(text), vision_config=dict(vision), **widths)
    config._attn_implementation = how
    model = PaliGemmaForConditionalGeneration(config).eval()
    with torch.no_grad():
        one, other = (model(input_ids=x, attention_mask=mask).logits[0, 1] for x in (ids, altered))
    name = how + (" and padding" if mask is not None else "")
    seen[name] = float((one - other).norm() / one.norm())
print("expected: the second token's logits change alike with the last token, or not at all")
print(f"observed: {', '.join(f'{name} {change:.2g}' for name, change in seen.items())}")
sys.exit(max(seen.values()) - min(seen.values()) > 1e-3)
