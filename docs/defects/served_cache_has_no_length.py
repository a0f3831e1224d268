"""Continuous batching passes models a cache without a length, which they ask for.

Claims: G5
Types: bart, bert, bert-generation, bigbird_pegasus, biogpt, blenderbot, blenderbot-small,
    camembert, ctrl, data2vec-text, electra, ernie, marian, mbart, opt, pegasus, plbart, roberta,
    roberta-prelayernorm, roc_bert, whisper, xlm-roberta, xlm-roberta-xl, xmod
Met by: whoever serves such a decoder by generate_batch: every request fails
Seen in: transformers 5.24.0
Expected: a request is answered by as many tokens as it asks for
Observed: 0 tokens: 'PagedAttentionCache' object has no attribute 'get_seq_length'
Cause: generation/continuous_batching/input_outputs.py, 507: the server passes its cache as the
    argument `cache`. Until 5.23 that reached the attention functions alone, among ``**kwargs``. In
    5.24 `cache` is the model's own argument, once `past_key_values`. Models ask it for its length
    even where they are given position_ids (models/opt/modeling_opt.py, 347); a server's cache has
    no such method. Llama and others ask only where there are no position_ids.
Fix: generation/continuous_batching/cache.py, 395: a method `get_seq_length` that gives 0: a served
    batch starts no sequence late, its position_ids number the tokens. CTRL and Whisper need
    more (served_cache_gets_no_arguments.py, whisper_is_served_without_its_cache.py)
Upstream: not found by searching for "PagedAttentionCache object has no attribute get_seq_length"
"""

import logging
import sys

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, OPTConfig, OPTForCausalLM
from transformers.generation.continuous_batching.cache import PagedAttentionCache


def fix():
    """Apply the fix to transformers as it is installed."""
    PagedAttentionCache.get_seq_length = lambda self, layer_idx=0: 0


if "--fixed" in sys.argv:
    fix()

logging.disable()  # a request that fails logs why
torch.manual_seed(0)
config = OPTConfig(
    **{"vocab_size": 64, "hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 64},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64},
)
model = OPTForCausalLM(config).eval()
settings = ContinuousBatchingConfig(page_size=4, num_blocks=32, max_batch_tokens=32)
greedy = GenerationConfig(max_new_tokens=6, do_sample=False, eos_token_id=-1, pad_token_id=0)
(answer,) = model.generate_batch(
    [torch.randint(3, 64, (9,)).tolist()],
    generation_config=greedy,
    continuous_batching_config=settings,
    warmup=False,
).values()
found = len(answer.generated_tokens)
print("expected: 6 tokens, as the request asks for")
print(f"observed: {found} tokens: {answer.error}")
sys.exit(found != 6)
