"""Continuous batching by eager attention leaves out the soft cap of attention scores.

Claims: G5
Types: gemma2, vaultgemma
Met by: whoever serves Gemma 2 by generate_batch without flash attention: it needs eager attention
Seen in: transformers 5.23.0, 5.24.0
Expected: the log probabilities of a request's tokens are those of the same tokens in one pass
Observed: they differ by up to 0.19
Cause: integrations/eager_paged.py, 52: the scores go from the scaled product to the softmax; the
    ``softcap`` among the arguments, which models/gemma2/modeling_gemma2.py, 195 applies, is
    dropped with the other ``**kwargs``.
Fix: integrations/eager_paged.py, 53: scores are capped before the mask is added, where there is
    a cap
Upstream: not found by searching for "continuous batching softcap"
"""

import inspect
import sys
import textwrap

import torch
from transformers import (
    ContinuousBatchingConfig,
    Gemma2Config,
    Gemma2ForCausalLM,
    GenerationConfig,
)
from transformers.integrations.eager_paged import eager_paged_attention_forward


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
    line = "attn_weights = torch.matmul(query, key.transpose(2, 3)) * scaling"
    cap = "attn_weights = torch.tanh(attn_weights / softcap) * softcap"
    change(
        eager_paged_attention_forward,
        (line, f'{line}\n    if (softcap := kwargs.get("softcap")) is not None:\n        {cap}'),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = Gemma2Config(
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
    **{"attn_logit_softcapping": 0.5, "query_pre_attn_scalar": 1, "initializer_range": 0.3},
)
model = Gemma2ForCausalLM(config).eval()
prompt = torch.randint(3, 64, (9,)).tolist()
settings = ContinuousBatchingConfig(
    page_size=4, num_blocks=32, max_batch_tokens=32, return_logprobs=True
)
greedy = GenerationConfig(max_new_tokens=6, do_sample=False, eos_token_id=-1, pad_token_id=0)
(answer,) = model.generate_batch(
    [prompt], generation_config=greedy, continuous_batching_config=settings, warmup=False
).values()
with torch.no_grad():
    ids = torch.tensor([prompt + answer.generated_tokens[:-1]])
    logprobs = model(ids).logits[0, len(prompt) - 1 :].float().log_softmax(-1)
exact = logprobs.gather(1, torch.tensor(answer.generated_tokens)[:, None])[:, 0]
apart = (torch.tensor(answer.logprobs) - exact).abs().max().item()
print("expected: the log probabilities of a request's tokens are those of one pass")
print(f"observed: they differ by up to {apart:.2g}")
sys.exit(apart > 1e-4)
