"""RecurrentGemma keeps its recurrent state in its modules and not in the cache.

Claims: C4
Types: recurrent_gemma
Met by: everyone who calls generate() with num_beams; whoever goes on from a returned cache or has
    two at a time
Seen in: transformers 5.23.0
Expected: beams have the same scores with and without the cache; use_cache returns a cache
Observed: log-probabilities per token off by 0.051; the cache returned is None
Cause: `conv1d_state` and `recurrent_states` are attributes of the layers
    (models/recurrent_gemma/modeling_recurrent_gemma.py, 412 and 298), so `Cache.reorder_cache`
    does not reach them: with both reordered along with the cache the beams' difference is gone
    (0). The model returns no `past_key_values` (679), so a caller who passes on what came back
    starts anew.
Upstream: not found by searching for "recurrent_gemma past_key_values None use_cache
    recurrent_states module"; generation/utils.py, 3835, has a note that such models need a
    `_reorder_cache`, which this one no longer has
"""

import sys

import torch
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

torch.manual_seed(0)
config = RecurrentGemmaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    lru_width=32,
    attention_window_size=8,
    w_init_variance_scale=1.0,
    logits_soft_cap=1.0,
)
model = RecurrentGemmaForCausalLM(config).eval()
ids = torch.randint(3, 64, (4, 6))
given = dict(num_beams=3, do_sample=False, max_new_tokens=10, eos_token_id=None)
given |= dict(output_scores=True, return_dict_in_generate=True)
with_cache, without = (
    model.generate(ids, use_cache=use, **given).sequences_scores for use in (True, False)
)
off = (with_cache - without).abs().max().item()
cache = model(ids, use_cache=True).get("past_key_values")
print("expected: beams have the same scores with and without the cache; use_cache returns a cache")
print(f"observed: log-probabilities per token off by {off:.2g}; the cache returned is {cache}")
sys.exit(off > 1e-3 or cache is None)
