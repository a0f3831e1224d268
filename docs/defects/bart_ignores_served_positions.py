"""BART and its relatives ignore the positions that a server passes them.

Claims: G5
Types: bart, bigbird_pegasus, blenderbot, blenderbot-small, marian, mbart, pegasus, plbart
Met by: whoever serves such a decoder (BartForCausalLM and the like) by generate_batch
Seen in: transformers 5.23.0, 5.24.0
Expected: the log probabilities of a request's tokens are those of the same tokens in one pass
Observed: they differ by up to 3.5; in 5.24.0 the request fails: 'PagedAttentionCache' object has
    no attribute 'get_seq_length'
Cause: models/bart/modeling_bart.py, 621: the decoder numbers its tokens from the length of
    ``past_key_values`` on, and drops the ``position_ids`` among its ``**kwargs``. A server passes
    a cache of its own and these position_ids: each batch is numbered from 0 on, across requests.
    In 5.24.0 the server passes its cache as the model's `cache`, and the decoder asks that for its
    length, which it does not have.
Fix: models/bart/modeling_bart.py, 621, and the same line in each of the types: position_ids are
    used where they are given, and counted otherwise; they have two dimensions (line 96). In
    5.24.0 a server's cache has a length besides, 0
Upstream: not found by searching for "position_ids ignored BartForCausalLM decoder" and "continuous
    batching position_ids BartForCausalLM"
"""

import inspect
import logging
import sys
import textwrap

import torch
import transformers
from transformers import BartConfig, BartForCausalLM, ContinuousBatchingConfig, GenerationConfig
from transformers.generation.continuous_batching.cache import PagedAttentionCache


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
    # A server passes its cache as the model's from 5.24 on; models ask it for a length.
    PagedAttentionCache.get_seq_length = lambda self: 0
    arguments = inspect.signature(transformers.BartForCausalLM.forward).parameters
    cache = "cache" if "cache" in arguments else "past_key_values"
    count = f"torch.arange(seq_length, device=inputs_embeds.device) + {cache}_length"
    given = f"""position_ids = kwargs.pop("position_ids", None)
    if position_ids is None:
        position_ids = ({count}).unsqueeze(0)"""
    names = "Bart Blenderbot BlenderbotSmall MBart Marian Pegasus PLBart BigBirdPegasus"
    for name in names.split():
        module = inspect.getmodule(getattr(transformers, f"{name}ForCausalLM"))
        change(getattr(module, f"{name}Decoder").forward, (f"position_ids = {count}", given))
        if name in ("Bart", "MBart", "PLBart"):
            table = getattr(module, f"{name}LearnedPositionalEmbedding")
            change(table.forward, ("position_ids = position_ids.unsqueeze(0)", "pass"))


if "--fixed" in sys.argv:
    fix()

logging.disable()  # a request that fails logs why
torch.manual_seed(0)
config = BartConfig(
    **{"vocab_size": 64, "d_model": 32, "max_position_embeddings": 64, "is_decoder": True},
    **{"decoder_layers": 2, "decoder_ffn_dim": 64, "decoder_attention_heads": 4},
    **{"encoder_attention_heads": 4, "is_encoder_decoder": False, "init_std": 0.3},
)
model = BartForCausalLM(config).eval()
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
apart = (torch.tensor(answer.logprobs) - exact).abs().tolist()
told = f"they differ by up to {max(apart):.2g}" if apart else f"no tokens: {answer.error}"
print("expected: the log probabilities of a request's tokens are those of one pass")
print(f"observed: {told}")
sys.exit(not apart or max(apart) > 1e-4)
