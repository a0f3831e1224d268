"""While a model with eager attention is served, its other passes attend to the tokens that follow.

Claims: G5
Types: gpt_oss
Met by: whoever serves a model by continuous batching and trains or evaluates it meanwhile, with
    attention by eager (the default of GPT-OSS)
Seen in: transformers 5.24.0
Expected: the logits of a pass are those of before
Observed: they are off by 6.9; 5.23 refused such a pass
Cause: integrations/eager_paged.py, 33 in 5.24: the server sets `paged|eager`, for which no mask is
    made. Until 5.23 that function took the server's cache and raised a ValueError without one;
    since the cache is updated by the model, it attends to all keys where it is given no mask.
Fix: integrations/eager_paged.py, 33 in 5.24: a pass without the server's mask is causal
Upstream: not found by searching for "paged|eager training while serving attends bidirectionally"
"""

import logging
import sys

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.integrations import eager_paged


def fix():
    """Apply the fix to transformers as it is installed."""
    import inspect

    function = eager_paged.eager_paged_attention_forward
    source, old = inspect.getsource(function), "    if attention_mask is not None:\n"
    assert source.count(old) == 1, f"transformers has no single line {old!r}"
    new = (
        "    if attention_mask is None:\n"
        "        rows, keys = attn_weights.shape[-2:]\n"
        "        ones = torch.ones(rows, keys, device=query.device)\n"
        "        later = ones.triu(keys - rows + 1).bool()\n"
        "        attn_weights = attn_weights.masked_fill(later, float('-inf'))\n"
    )
    exec(source.replace(old, new + old), vars(eager_paged), made := {})
    function.__code__ = made["eager_paged_attention_forward"].__code__


if "--fixed" in sys.argv:
    fix()

logging.disable()
torch.manual_seed(0)
config = LlamaConfig(
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3},
)
config._attn_implementation = "eager"
model, ids = LlamaForCausalLM(config).eval(), torch.randint(3, 64, (1, 9))
settings = ContinuousBatchingConfig(page_size=4, num_blocks=32, max_batch_tokens=32)
answer = GenerationConfig(max_new_tokens=2, do_sample=False, eos_token_id=-1, pad_token_id=0)
told = ""
with torch.no_grad():
    before = model(ids).logits
    with model.continuous_batching_context_manager(
        generation_config=answer, continuous_batching_config=settings, warmup=False
    ) as server:
        server.add_request(ids[0].tolist(), "0", max_new_tokens=2)
        while server.get_result(timeout=0.5) is None:
            pass
        try:
            meanwhile = model(ids).logits
        except ValueError as refused:
            meanwhile = before
            told = f"such a pass is refused: {refused}"[:90]
off = float((meanwhile - before).abs().max())
print("expected: the logits of a pass while the model is served are those of before")
print(f"observed: {told or f'they are off by {off:.2g}'}")
sys.exit(off > 1e-4)
