"""MiniMax's cache reorders keys and values for beams and not its linear states.

Claims: C2, C4
Types: minimax
Met by: everyone who calls generate() with num_beams
Seen in: transformers 5.23.0, 5.24.0
Expected: beams have the same scores with and without the cache
Observed: log-probabilities per token that are off by 0.15
Cause: `MiniMaxCache` (models/minimax/modeling_minimax.py, 72) has a `linear_cache` of its own and
    overrides `batch_select_indices` and `batch_repeat_interleave` for it, but not `reorder_cache`.
    With that overridden too the difference is gone (5e-7).
Fix: models/minimax/modeling_minimax.py, 72: `reorder_cache` is overridden as well (the two methods
    that are index `linear_cache` beyond its end where the last layer is not linear)
Upstream: other caches that beams did not reorder were issue #46612, fixed by PR #46819 (by its
    mention in PR #46735); MiniMaxCache not found by searching for "MiniMaxCache beam search
    reorder_cache linear_cache"
"""

import sys

import torch
from transformers import DynamicCache, MiniMaxConfig, MiniMaxForCausalLM
from transformers.models.minimax.modeling_minimax import MiniMaxCache


def fix():
    """Apply the fix to transformers as it is installed."""

    def reorder_cache(self, beam_idx):
        DynamicCache.reorder_cache(self, beam_idx)
        for layer_idx, states in enumerate(self.linear_cache):
            if isinstance(states, torch.Tensor):
                self.linear_cache[layer_idx] = states.index_select(0, beam_idx.to(states.device))

    MiniMaxCache.reorder_cache = reorder_cache


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = MiniMaxConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    layer_types=["linear_attention", "full_attention"],
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=2,
    block_size=8,
    initializer_range=0.2,
)
model = MiniMaxForCausalLM(config).eval()
ids = torch.randint(3, 64, (4, 6))
given = dict(num_beams=3, do_sample=False, max_new_tokens=10, eos_token_id=None, pad_token_id=0)
given |= dict(output_scores=True, return_dict_in_generate=True)
with_cache, without = (
    model.generate(ids, use_cache=use, **given).sequences_scores for use in (True, False)
)
off = (with_cache - without).abs().max().item()
print("expected: beams have the same scores with and without the cache")
print(f"observed: log-probabilities per token that are off by {off:.2g}")
sys.exit(off > 1e-3)
