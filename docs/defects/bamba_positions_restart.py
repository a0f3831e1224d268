"""Bamba counts positions from 0 when it goes on from a cache.

Claims: C2
Types: bamba
Met by: custom decoding loops that give no position_ids (generate() gives them)
Seen in: transformers 5.23.0, 5.24.0
Expected: the last token on a cache of the others gives the logits of one pass
Observed: logits that are off by 0.93; with position_ids=[[5]] by 2e-06
Cause: models/bamba/modeling_bamba.py, 971: the default positions are `arange(n)`; its relatives
    add `past_key_values.get_seq_length()` (falcon_h1, 1069). With positions given the difference
    is gone.
Fix: models/bamba/modeling_bamba.py, 971: positions go on from the cache's length
Upstream: not found by searching for "Bamba position_ids default past length cached forward"
"""

import inspect
import sys
import textwrap

import torch
from transformers import BambaConfig, BambaForCausalLM
from transformers.models.bamba.modeling_bamba import BambaModel


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
    arguments = inspect.signature(BambaModel.forward).parameters
    cache = "cache" if "cache" in arguments else "past_key_values"
    line = "torch.arange(hidden_states.shape[1], device=hidden_states.device).unsqueeze(0)"
    more = f"position_ids = position_ids + {cache}.get_seq_length()"
    change(
        BambaModel.forward,
        (line, f"{line}\n        if {cache} is not None:\n            {more}"),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = BambaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    attn_layer_indices=[1],
    mamba_n_heads=8,
    mamba_d_state=8,
    mamba_chunk_size=4,
    initializer_range=0.3,
)
model = BambaForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
ids = torch.randint(3, 64, (1, 6))


def off(**given):
    """How far the last token's logits are from one pass if it comes on a cache."""
    cache = model(ids[:, :-1], use_cache=True)[keyword]
    last = model(ids[:, -1:], **{keyword: cache}, **given).logits[0, -1]
    return (last - model(ids).logits[0, -1]).abs().max().item()


with torch.no_grad():
    plain, told = off(), off(position_ids=torch.tensor([[5]]))
print("expected: the last token on a cache of the others gives the logits of one pass")
print(f"observed: logits that are off by {plain:.2g}; with position_ids=[[5]] by {told:.0e}")
sys.exit(plain > 1e-3)
