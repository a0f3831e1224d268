"""An offloaded cache with one attention layer reads its keys before they have come back.

Claims: C2 [offloaded]
Types: granitemoehybrid, jamba, qwen3_5_text, qwen3_next, llama
Met by: whoever offloads the cache of a model that has one layer of attention beside recurrent
    ones, or one layer at all
Seen in: transformers 5.23.0, 5.24.0
Expected: an offloaded cache gives the logits of one that stays
Observed: where copies arrive once they are waited for, logits that are not numbers; on an H100
    (torch 2.11.0) decoding was off in 20 of 20 runs, by up to 0.66 of the logits' length
Cause: `Cache.update` (cache_utils.py, 1562) waits for the copy that the update before it began,
    begins the copy of the next layer's keys on another stream, and updates its own layer. If only
    one layer is offloaded, the next layer is that layer, and nothing waits.
Fix: cache_utils.py, 1528: `prefetch` waits where one layer is offloaded. With a wait after each
    `prefetch`, all runs on that H100 were equal to those without offloading, bit by bit
Upstream: wrong logits of an offloaded cache on hybrids are issue #48947, seen in 5.17, which did
    not wait at all; 5.23 waits except here
"""

import inspect
import sys

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, cache_utils
from transformers.cache_utils import Cache, DynamicLayer


def fix():
    """Apply the fix to transformers as it is installed."""
    was = Cache.prefetch

    def prefetch(self, layer_idx, only_non_sliding=True):
        was(self, layer_idx, only_non_sliding)
        moved = [
            layer
            for layer, *not_moved in zip(self.layers, self.is_dummy, self.is_linear, strict=True)
            if not any(not_moved)
            and not (only_non_sliding and getattr(layer, "is_sliding", False))
        ]
        if len(moved) == 1 and moved[0].is_initialized:  # the layer that is about to be updated
            torch.cuda.default_stream(moved[0].device).wait_stream(self.prefetch_stream)

    Cache.prefetch = prefetch


if "--fixed" in sys.argv:
    fix()


begun = []  # copies: a layer, its keys, its values


class Stream:
    """In place of a GPU's: copies that it began arrive when it is waited for, and not before."""

    def __enter__(self):
        """Begin copies on it."""

    def __exit__(self, *error):
        """End."""

    def wait_stream(self, other):
        """Wait for all copies."""
        for layer, keys, values in begun:
            layer.keys, layer.values = keys, values
        begun.clear()


def prefetch(layer):
    """Begin to copy a layer's keys and values back."""
    if layer.is_initialized:
        begun.append((layer, layer.keys, layer.values))
        layer.keys, layer.values = layer.keys * torch.nan, layer.values * torch.nan


sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_attention_heads=4)
model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=1)).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
torch.Stream, DynamicLayer.prefetch = Stream, prefetch
cache_utils.torch.cuda.default_stream = lambda device: Stream()
ids, cache = torch.randint(64, (1, 8)), DynamicCache(config=model.config, offloading=True)
logits = [model(ids[:, i : i + 1], **{keyword: cache}).logits for i in range(8)]
wrong = sum(not each.isfinite().all() for each in logits)
print("expected: an offloaded cache gives the logits of one that stays")
print(f"observed: logits of {wrong} of 8 tokens that are not numbers")
sys.exit(wrong > 0)
