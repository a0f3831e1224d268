"""Reformer breaks on position_ids where it pads the prompt by itself.

Claims: none
Types: reformer
Met by: whoever gives position_ids with a prompt whose length is no multiple of the chunks'
Seen in: transformers 5.23.0, 5.24.0
Expected: the positions that it counts itself, given, change nothing
Observed: 8 tokens: off by 0, 10 tokens: RuntimeError
Cause: models/reformer/modeling_reformer.py, 2048: `padded_seq_length` is the length of the chunks
    and not that of the padded prompt, so `torch.arange` (2133) ends before it begins; and what it
    makes is overwritten by an expansion of the given ids (2134). With the
    places of the padding itself in their stead the error is gone (0). Assay, whose probe meets the
    error, asks Reformer nothing about given positions.
Fix: models/reformer/modeling_reformer.py, 2133 and 2134: the places of the padding, which is part
    of `input_shape` by then
Upstream: the same lines, for embeddings, are issue #10675 (closed); the error not found by
    searching for "Reformer position_ids _pad_to_mult_of_chunk_length"
"""

import inspect
import sys
import textwrap

import torch
from transformers import ReformerConfig, ReformerModelWithLMHead
from transformers.models.reformer.modeling_reformer import ReformerModel


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
        ReformerModel._pad_to_mult_of_chunk_length,
        (
            "torch.arange(input_shape[-1], padded_seq_length,",
            "torch.arange(input_shape[-1] - padding_length, input_shape[-1],",
        ),
        (
            "padded_position_ids = position_ids.unsqueeze(0)",
            "padded_position_ids = padded_position_ids.unsqueeze(0)",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = ReformerConfig(
    vocab_size=64,
    hidden_size=32,
    attention_head_size=16,
    num_attention_heads=2,
    feed_forward_size=64,
    attn_layers=["local", "local"],
    local_attn_chunk_length=4,
    axial_pos_shape=(4, 8),
    axial_pos_embds_dim=(16, 16),
    max_position_embeddings=32,
    is_decoder=True,
)
model = ReformerModelWithLMHead(config).eval()
said = {}
for n in (8, 10):
    ids = torch.randint(3, 64, (1, n))
    try:
        given = model(ids, position_ids=torch.arange(n)[None]).logits
        said[n] = f"off by {(given - model(ids).logits).abs().max().item():.2g}"
    except RuntimeError as error:
        said[n] = type(error).__name__
print("expected: the positions that it counts itself, given, change nothing")
print("observed: " + ", ".join(f"{n} tokens: {what}" for n, what in said.items()))
sys.exit(said[10] == "RuntimeError")
