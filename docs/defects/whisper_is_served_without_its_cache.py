"""WhisperForCausalLM keeps a server's cache from its layers.

Claims: G5
Types: whisper
Met by: whoever serves WhisperForCausalLM by generate_batch: every request fails, once
    served_cache_has_no_length.py is out of the way
Seen in: transformers 5.24.0
Expected: a request is answered by as many tokens as it asks for
Observed: 0 tokens: 'PagedAttentionCache' object has no attribute 'get_seq_length'; with that
    method: The size of tensor a (2) must match the size of tensor b (18)
Cause: models/whisper/modeling_whisper.py, 811: the decoder gives its layers the cache only under
    ``use_cache``. A server sets that to False, since its cache is its own
    (generation/continuous_batching/input_outputs.py, 509), so nothing is kept, and the mask is of
    more keys than there are. Until 5.23 the server's cache came by ``**kwargs`` past this line.
Fix: models/whisper/modeling_whisper.py, 811: layers get the cache that the decoder was given or
    has made. A server's cache has a length besides, 0
Upstream: not found by searching for "WhisperForCausalLM generate_batch continuous batching cache"
"""

import inspect
import logging
import sys
import textwrap

import torch
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    WhisperConfig,
    WhisperForCausalLM,
)
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.models.whisper.modeling_whisper import WhisperDecoder


def change(function, *lines):
    """Replace an old line of a function's source by a new one, for each pair."""
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in lines:
        assert source.count(old) == 1, f"transformers has no single line {old!r}"
        source = source.replace(old, new)
    body = "def " + source.partition("def ")[2]  # its decorators stay as they are
    cells = function.__code__.co_freevars
    body = f"def scope({', '.join(cells)}):\n{textwrap.indent(body, '    ')}"
    exec(f"{body}\n    return {function.__name__}", function.__globals__, made := {})
    function.__code__ = made["scope"](*cells).__code__


def fix():
    """Apply the fix to transformers as it is installed."""
    PagedAttentionCache.get_seq_length = lambda self, layer_idx=0: 0
    change(WhisperDecoder.forward, ("cache=cache if use_cache else None,", "cache=cache,"))


if "--fixed" in sys.argv:
    fix()

logging.disable()  # a request that fails logs why
torch.manual_seed(0)
config = WhisperConfig(
    **{"vocab_size": 64, "d_model": 32, "decoder_layers": 2, "decoder_ffn_dim": 64},
    **{"decoder_attention_heads": 4, "encoder_layers": 2, "encoder_attention_heads": 4},
    **{"pad_token_id": 0, "max_target_positions": 64},
)
model = WhisperForCausalLM(config).eval()
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
