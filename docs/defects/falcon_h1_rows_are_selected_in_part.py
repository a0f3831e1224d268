"""Caches of hybrid layers select rows of keys and values and not of states.

Claims: C2 [batch_select_indices], C2 [batch_repeat_interleave]
Types: falcon_h1, inkling2, inkling2_loop, inkling2_loop_text, inkling2_text, inkling_mm_model,
    inkling_text, zaya
Met by: own search and sampling loops that drop or repeat rows of a batch
Seen in: transformers 5.23.0, 5.24.0
Expected: a cache of which one row is kept goes on with that row
Observed: rows of keys, convolution, recurrence: (1, 2, 2); RuntimeError: Sizes of tensors must
    match except in dimension 2. Expected size 2 but got size 1 for tensor number 1 in the list.
Cause: `LinearAttentionAndFullAttentionLayer` (cache_utils.py, 1251) and its sibling for sliding
    windows inherit `batch_select_indices` and `batch_repeat_interleave` from `DynamicLayer`, which
    know keys and values only (183, 189); they override `reorder_cache`, `crop` and others for
    both. Purely linear layers have no such methods and say so.
Fix: cache_utils.py, 1251 and 1290: both classes get `batch_select_indices` and
    `batch_repeat_interleave` by way of their `reorder_cache`, which knows keys, values and states
Upstream: not found by searching for "LinearAttentionAndFullAttentionLayer batch_select_indices
    batch_repeat_interleave"
"""

import inspect
import sys

import torch
from transformers import FalconH1Config, FalconH1ForCausalLM, cache_utils


def fix():
    """Apply the fix to transformers as it is installed."""

    def batch_select_indices(self, indices):
        if self.get_seq_length() > 0:
            self.reorder_cache(torch.arange(len(self.keys), device=self.keys.device)[indices])

    def batch_repeat_interleave(self, repeats):
        if self.get_seq_length() > 0:
            rows = torch.arange(len(self.keys), device=self.keys.device)
            self.reorder_cache(rows.repeat_interleave(repeats))

    for layer in (
        cache_utils.LinearAttentionAndFullAttentionLayer,
        cache_utils.LinearAttentionAndSlidingWindowAttentionLayer,
    ):
        layer.batch_select_indices = batch_select_indices
        layer.batch_repeat_interleave = batch_repeat_interleave


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = FalconH1Config(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    mamba_n_heads=8,
    mamba_d_head=8,
    mamba_d_ssm=64,
    mamba_d_state=8,
)
model = FalconH1ForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
ids = torch.randint(3, 64, (2, 6))
with torch.no_grad():
    cache = model(ids, use_cache=True)[keyword]
    cache.batch_select_indices(torch.tensor([1]))
    layer = cache.layers[0]
    rows = len(layer.keys), len(layer.conv_states[0]), len(layer.recurrent_states[0])
    told = "works"
    try:
        model(ids[1:, :1], **{keyword: cache})
    except RuntimeError as error:
        told = f"RuntimeError: {str(error).splitlines()[0]}"
print("expected: a cache of which one row is kept goes on with that row")
print(f"observed: rows of keys, convolution, recurrence: {rows}; {told}")
sys.exit(told != "works")
