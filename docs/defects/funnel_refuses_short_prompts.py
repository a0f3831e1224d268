"""Funnel cannot read prompts of 1 to 4 tokens.

Claims: none
Types: funnel
Met by: whoever gives a prompt of a word or two
Seen in: transformers 5.23.0, 5.24.0
Expected: logits for prompts of every length
Observed: prompts of [1, 2, 3, 4] tokens raise RuntimeError, the first: index 4 is out of bounds
    for dimension 0 with size 4
Cause: with relative_shift attention (the default) the third block's positions reach beyond their
    table of 4 n rows (models/funnel/modeling_funnel.py, 181), and for 3 or 4 tokens pooled
    positions and pooled cls mask have different lengths (406). With attention_type="factorized"
    the errors are gone.
Fix: models/funnel/modeling_funnel.py, 144: the table has room for the place of cls, which is
    2**block before the prompt's, and 156: positions are pooled no further than the states, which
    stay as they are at 2 (`FunnelEncoder.forward`)
Upstream: a remark in PR #7029 (2020) says that it "pools twice, so it needs a sequence length of
    4"; 4 fails too, and the documentation names no such limit; no issue found by searching for
    "funnel short sequence separate_cls truncate_seq"
"""

import inspect
import sys
import textwrap

import torch
from transformers import FunnelConfig, FunnelForMaskedLM
from transformers.models.funnel.modeling_funnel import FunnelAttentionStructure


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
    table = "rel_pos_id = torch.arange(-seq_len * 2, seq_len * 2,"
    block = "            # For each block with block_index > 0, we need two types"
    change(
        FunnelAttentionStructure.get_position_embeds,
        (
            table,
            "zero_offset = seq_len * 2 + 2**self.config.num_blocks\n"
            "        rel_pos_id = torch.arange(-zero_offset, zero_offset,",
        ),
        ("        zero_offset = seq_len * 2\n", ""),
        (
            block,
            "            if block_index and len(pos) <= (2 if self.config.separate_cls else 1):\n"
            "                position_embeds_list.append(position_embeds_list[-1])\n"
            f"                continue\n{block}",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = FunnelConfig(
    vocab_size=64,
    d_model=32,
    n_head=4,
    d_head=8,
    d_inner=64,
)
model = FunnelForMaskedLM(config).eval()
told = {}
for n in range(1, 8):
    try:
        model(torch.randint(3, 64, (1, n)))
        told[n] = ""
    except RuntimeError as error:
        told[n] = str(error).splitlines()[0]
refused = [n for n in told if told[n]]
print("expected: logits for prompts of every length")
print(f"observed: prompts of {refused} tokens raise RuntimeError, the first: {told[1]}")
sys.exit(bool(refused))
