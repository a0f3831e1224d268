"""Mamba's mixers begin a chunk of several tokens from an empty state.

Claims: C2, C5, G7
Types: mamba, falcon_mamba, jamba, zamba
Met by: generate() with prefill_chunk_size; whoever goes on from a cache with more than one token
Seen in: transformers 5.23.0
Expected: a second half read on the cache of the first gives the logits of one pass
Observed: logits that are off by 7.5 (falcon_mamba 6.5, jamba 1.1, zamba 10 with other weights)
Cause: the full sequence form (models/mamba/modeling_mamba.py, 459) calls `mamba_selective_scan`,
    which has no argument for a state and begins with zeros (251); only a single token goes on from
    the cache's state. Read token by token the difference is gone (2e-5).
Upstream: for mamba2 it was issue #46032, mended by PR #46084 (merged), and for its relatives by PR
    #46741 (merged); a comment on PR #45513 (merged) names jamba and zamba; nothing on mamba and
    falcon_mamba found by searching for "mamba jamba chunked prefill selective scan initial state"
"""

import sys

import torch
from transformers import MambaConfig, MambaForCausalLM

torch.manual_seed(0)
config = MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, initializer_range=0.5)
model = MambaForCausalLM(config).eval()
ids = torch.randint(1, 64, (1, 6))
with torch.no_grad():
    whole = model(ids).logits[:, 3:]
    cache = model(ids[:, :3], use_cache=True).cache_params
    rest = model(ids[:, 3:], cache_params=cache, use_cache=True).logits
off = (rest - whole).abs().max().item()
print("expected: a second half read on the cache of the first gives the logits of one pass")
print(f"observed: logits that are off by {off:.2g}")
sys.exit(off > 1e-3)
