"""GPT-Neo with a static cache lets tokens see what comes after them.

Claims: C2, C4, C5, G4
Types: gpt_neo
Met by: whoever calls generate() with cache_implementation="static"
Seen in: transformers 5.23.0, 5.24.0
Expected: generate() with a static cache sees the logits that it sees without
Observed: logits off by 2.8, without a warning
Cause: models/gpt_neo/modeling_gpt_neo.py, 115: the rows of the layer's own mask are those up to
    the length of the keys, which with a static cache is its room and not what was seen. With the
    rows of the queries the difference is gone (5e-6). The class says `_can_compile_fullgraph =
    False` (363), which turns compilation off and nothing else: the cache is made and used.
Fix: models/gpt_neo/modeling_gpt_neo.py, 115 and 153: the rows of the mask are those of the
    queries, whose places are read from the cache before it is filled; room beyond the context is
    masked
Upstream: not found by searching for "gpt_neo static cache wrong outputs"
"""

import inspect
import sys
import textwrap

import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention


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
    past = "past = 0 if layer_past is None else int(layer_past.get_seq_length(self.layer_id))"
    change(
        GPTNeoSelfAttention._attn,
        ("attention_mask=None):", "attention_mask, past):"),
        (
            "self.bias[:, :, key_length - query_length : key_length, :key_length]",
            "self.bias[:, :, past : past + query_length, :key_length]\n"
            "    room = (0, key_length - causal_mask.shape[-1])\n"
            "    causal_mask = nn.functional.pad(causal_mask, room)",
        ),
    )
    change(
        GPTNeoSelfAttention.forward,
        ("    if layer_past is not None:\n", f"    {past}\n    if layer_past is not None:\n"),
        ("value, attention_mask)\n", "value, attention_mask, past)\n"),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = GPTNeoConfig(
    vocab_size=64,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    max_position_embeddings=64,
    attention_types=[[["global", "local"], 1]],
    window_size=8,
    initializer_range=0.3,
    bos_token_id=1,
    eos_token_id=2,
)
model = GPTNeoForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 6))
given = dict(max_new_tokens=8, do_sample=False, output_logits=True, return_dict_in_generate=True)
plain, static = (
    model.generate(ids, cache_implementation=cache, **given).logits[0]
    for cache in (None, "static")
)
off = (static - plain).abs().max().item()
print("expected: generate() with a static cache sees the logits that it sees without")
print(f"observed: logits off by {off:.2g}, without a warning")
sys.exit(off > 1e-3)
