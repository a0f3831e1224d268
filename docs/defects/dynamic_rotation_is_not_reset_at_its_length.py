"""After a longer prompt, one of exactly the original length is rotated by the longer one's angles.

Claims: A15
Types: llama, *+dynamic*
Met by: whoever scales rotary positions dynamically, in this type or another, and reads a prompt
    of max_position_embeddings tokens after a longer one
Seen in: transformers 5.23.0, 5.24.0
Expected: a prompt of the original length has one answer, before and after a longer one
Observed: logits that are off by 6.4; for a prompt one token shorter by 0
Cause: modeling_rope_utils.py, 113: frequencies are reset where `seq_len < original_max_seq_len`,
    and they grow where it is larger: a prompt of exactly that length does neither
Fix: modeling_rope_utils.py, 113: frequencies are reset at the original length as well
Upstream: not found by searching for "dynamic rope inv_freq not reset seq_len equals
    original_max_seq_len"; PR 46624 repaired the reset after longer prompts, and not this
"""

import inspect
import sys
import textwrap

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_rope_utils import dynamic_rope_update
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding


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
    change(
        dynamic_rope_update,
        ("seq_len < self.original_max_seq_len", "seq_len <= self.original_max_seq_len"),
    )
    # Llama was decorated before the change; types that are imported from here on are after it.
    plain = inspect.unwrap(LlamaRotaryEmbedding.forward)
    LlamaRotaryEmbedding.forward = torch.no_grad()(dynamic_rope_update(plain))


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=16,
    rope_scaling={"rope_type": "dynamic", "factor": 4.0},
    initializer_range=0.3,
)
model = LlamaForCausalLM(config).eval()
ids = torch.arange(3, 35)[None]


def off(length):
    """How far the logits of a prompt of this length move once a longer one was read."""
    model(ids[:, :1])  # resets the frequencies
    before = model(ids[:, :length]).logits
    model(ids)
    return (model(ids[:, :length]).logits - before).abs().max().item()


with torch.no_grad():
    own, shorter = off(16), off(15)
print("expected: a prompt of the original length has one answer, before and after a longer one")
print(
    f"observed: logits that are off by {own:.2g}; for a prompt one token shorter by {shorter:.0f}"
)
sys.exit(own > 1e-3)
