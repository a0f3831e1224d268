"""An offloaded cache moves the recurrent states of hybrid layers away while they are needed.

Claims: C2 [offloaded]
Types: zamba2
Met by: whoever calls generate() with cache_implementation="offloaded" on a model whose layers have
    attention and a recurrent state
Seen in: transformers 5.23.0, 5.24.0
Expected: an offloaded cache gives the logits of one that stays
Observed: states that are not there: on a GPU a RuntimeError, "Expected all tensors to be on the
    same device"
Cause: `Cache.update` (cache_utils.py, 1573) offloads a layer once its keys are updated, and a
    hybrid layer's `offload` (1268) moves its recurrent states too. Zamba2 reads those after its
    attention. States of layers that are only recurrent stay on the device.
Fix: cache_utils.py, 1268 and 1335: `offload` and `prefetch` of hybrid layers move keys and values
Upstream: PR #46748 left layers without attention out; hybrid layers not found by searching
    for "offload LinearAttentionAndFullAttentionLayer conv_states"
"""

import inspect
import sys

import torch
from transformers import DynamicCache, Zamba2Config, Zamba2ForCausalLM, cache_utils
from transformers.cache_utils import (
    DynamicLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionCacheLayerMixin,
)


def fix():
    """Apply the fix to transformers as it is installed."""
    LinearAttentionAndFullAttentionLayer.offload = lambda self: DynamicLayer.offload(self)
    LinearAttentionAndFullAttentionLayer.prefetch = lambda self: DynamicLayer.prefetch(self)


if "--fixed" in sys.argv:
    fix()


class Stream:
    """In place of a GPU's."""

    def __enter__(self):
        """Begin copies on it."""

    def __exit__(self, *error):
        """End."""

    def wait_stream(self, other):
        """Wait for the copies of another."""


def offload(layer):
    """Move the states away, where no pass can read them."""
    for states in (layer.conv_states, layer.recurrent_states):
        states.update({i: state * torch.nan for i, state in states.items() if state is not None})


config = Zamba2Config(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    layers_block_type=["linear_attention", "hybrid"],
    num_attention_heads=4,
    n_mamba_heads=8,
    mamba_d_state=8,
)
model = Zamba2ForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
torch.Stream = Stream
cache_utils.torch.cuda.default_stream = lambda device: Stream()
LinearAttentionCacheLayerMixin.offload = offload
ids, cache = torch.randint(64, (1, 8)), DynamicCache(config=model.config, offloading=True)
logits = [model(ids[:, i : i + 1], **{keyword: cache}).logits for i in range(8)]
wrong = sum(not each.isfinite().all() for each in logits)
print("expected: an offloaded cache gives the logits of one that stays")
print(f"observed: logits of {wrong} of 8 tokens read states that are not there")
sys.exit(wrong > 0)
