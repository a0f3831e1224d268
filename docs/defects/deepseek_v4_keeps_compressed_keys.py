"""DeepSeek V4's cache crops and selects its window and not its compressed keys.

Claims: C2
Types: deepseek_v4
Met by: own loops of speculative decoding, search or sampling (generate() refuses assistants)
Seen in: transformers 5.23.0, 5.24.0
Expected: a cropped cache has forgotten what was cropped, and one row goes on alone
Observed: is_croppable is True, logits off by 2.6; RuntimeError: Sizes of tensors must match
    except in dimension 1. Expected size 2 but got size 1 for tensor number 1 in the list.
Cause: `DeepseekV4HCACache` and `DeepseekV4CSACache` (models/deepseek_v4/modeling_deepseek_v4.py,
    156 and 254) keep compressed keys, the buffers of unfinished blocks and their counts beside the
    window. They override `reorder_cache` and `reset` for them; `is_croppable`, `crop`,
    `batch_select_indices` and `batch_repeat_interleave` are inherited from
    `DynamicSlidingWindowLayer` and know the window only. `update` (189) does not look at
    `record_past` either, so that beyond the window the keys to go back to are gone.
Fix: models/deepseek_v4/modeling_deepseek_v4.py, 156: rows are selected and repeated by way of
    `reorder_cache`, which knows all states; `is_croppable` is False, so that nothing crops what
    cannot be cropped (going back would take a record of buffers and counts, as PR #48721 says of
    V4.1)
Upstream: PR #48721 (closed, not merged) had DeepSeek V4.1's layers say `is_croppable=False` and
    refuse; V4 not found by searching for "DeepseekV4 cache crop compressor batch_select_indices"
"""

import inspect
import sys

import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM, DynamicCache
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HCACache


def fix():
    """Apply the fix to transformers as it is installed."""

    def batch_select_indices(self, indices):
        if self.get_seq_length() > 0:
            self.reorder_cache(torch.arange(len(self.keys), device=self.keys.device)[indices])

    def batch_repeat_interleave(self, repeats):
        if self.get_seq_length() > 0:
            rows = torch.arange(len(self.keys), device=self.keys.device)
            self.reorder_cache(rows.repeat_interleave(repeats))

    DeepseekV4HCACache.batch_select_indices = batch_select_indices
    DeepseekV4HCACache.batch_repeat_interleave = batch_repeat_interleave
    DeepseekV4HCACache.is_croppable = False


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = DeepseekV4Config(
    vocab_size=64,
    hidden_size=32,
    moe_intermediate_size=32,
    num_hidden_layers=2,
    layer_types=["heavily_compressed_attention", "compressed_sparse_attention"],
    mlp_layer_types=["moe"] * 2,
    compress_rates={"heavily_compressed_attention": 4, "compressed_sparse_attention": 2},
    **dict(num_attention_heads=4, head_dim=16, q_lora_rank=16, o_lora_rank=16, o_groups=2),
    **dict(n_routed_experts=2, num_experts_per_tok=1, initializer_range=0.2),
)
model = DeepseekV4ForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
ids, drafts = torch.randint(3, 64, (2, 12)), torch.randint(3, 64, (2, 5))
with torch.no_grad():
    cache = DynamicCache(config=config)
    cache.activate_past_recording()
    model(ids[:, :-1], **{keyword: cache})
    can = cache.is_croppable
    if can:
        model(drafts, **{keyword: cache})
        cache.crop(-5)
    last = model(ids[:, -1:], **{keyword: cache}).logits[:, -1]
    off = (last - model(ids, use_cache=False).logits[:, -1]).abs().max().item()
    cache = model(ids[:, :-1], use_cache=True)[keyword]
    cache.batch_select_indices(torch.tensor([1]))
    told = "works"
    try:
        model(ids[1:, -1:], **{keyword: cache})
    except RuntimeError as error:
        told = f"RuntimeError: {str(error).splitlines()[0]}"
print("expected: a cropped cache has forgotten what was cropped, and one row goes on alone")
print(f"observed: is_croppable is {can}, logits off by {off:.2g}; {told}")
sys.exit((can and off > 1e-3) or told != "works")
