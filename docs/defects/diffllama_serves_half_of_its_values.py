"""Under continuous batching DiffLlama reads one half of its cached values in place of both.

Claims: G5
Types: diffllama
Met by: whoever serves DiffLlama by generate_batch
Seen in: transformers 5.23.0
Fixed in: transformers 5.24.0
Expected: the log probabilities of a request's tokens are those of the same tokens in one pass
Observed: they differ by up to 5.6
Cause: models/diffllama/modeling_diffllama.py, 274 and 283: each layer calls the attention function
    twice, with one half of the values and with the other. A paged one writes its values into the
    server's cache in each call, and the second call overwrites what the first has written.
Fix: models/diffllama/modeling_diffllama.py, 263: a server's cache is updated once, with all
    values, and the two halves are attended to by the same function without pages. In 5.24.0 the
    model updates a server's cache itself, before it divides the values (line 264). By its source,
    the defect stays where flash attention writes to the cache (`block_table`, on a GPU; not run)
Upstream: not found in transformers by searching for "diffllama continuous batching paged"
"""

import inspect
import sys
import textwrap

import torch
from transformers import (
    ContinuousBatchingConfig,
    DiffLlamaConfig,
    DiffLlamaForCausalLM,
    GenerationConfig,
)
from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention


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
    once = """pages = kwargs.pop("cache", None)
    if pages is not None:
        key_states, value_states = pages.update(
            key_states=key_states,
            value_states=value_states,
            layer_idx=self.layer_idx,
            kwargs=kwargs,
        )
    """
    split = "value_states1, value_states2 ="
    name = "self.config._attn_implementation,"
    change(
        DiffLlamaAttention.forward,
        (split, once + split),
        (name, 'self.config._attn_implementation.removeprefix("paged|" if pages else ""),'),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = DiffLlamaConfig(
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
    initializer_range=0.3,
)
model = DiffLlamaForCausalLM(config).eval()
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
