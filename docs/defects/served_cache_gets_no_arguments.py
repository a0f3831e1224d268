"""GPT-NeoX and CTRL update a server's cache without the arguments that it needs.

Claims: G5
Types: ctrl, gpt_neox
Met by: whoever serves such a model by generate_batch: every request fails
Seen in: transformers 5.24.0
Expected: a request is answered by as many tokens as it asks for
Observed: 0 tokens: PagedAttentionCache.update() missing 1 required positional argument: 'kwargs'
Cause: models/gpt_neox/modeling_gpt_neox.py, 203: the attention updates `layer_past` by keys,
    values and its layer. Since 5.24 that is the server's cache, which finds the indices to read
    and write among the attention's ``**kwargs``; Llama and others pass them on. Until 5.23 the
    server's cache reached the attention function alone, which passed them.
Fix: models/gpt_neox/modeling_gpt_neox.py, 203, and models/ctrl/modeling_ctrl.py, 130: they pass on
    ``kwargs=kwargs``. CTRL asks the cache for its length before (served_cache_has_no_length.py)
Upstream: not found by searching for "PagedAttentionCache.update missing kwargs gpt_neox"
"""

import inspect
import logging
import sys
import textwrap

import torch
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
)
from transformers.models.ctrl.modeling_ctrl import MultiHeadAttention
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention


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
    update = "layer_past.update(key_states, value_states, self.layer_idx"
    for attention in (GPTNeoXAttention, MultiHeadAttention):
        change(attention.forward, (f"{update})", f"{update}, kwargs=kwargs)"))


if "--fixed" in sys.argv:
    fix()

logging.disable()  # a request that fails logs why
torch.manual_seed(0)
config = GPTNeoXConfig(
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "max_position_embeddings": 64},
)
model = GPTNeoXForCausalLM(config).eval()
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
