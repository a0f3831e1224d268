"""DBRX cannot be built or run with the default attention.

Claims: none
Types: dbrx
Met by: whoever builds a DbrxConfig of their own; checkpoints that set both fields work
Seen in: transformers 5.23.0, 5.24.0
Expected: a model of default attention can be built and run
Observed: 'DbrxAttentionConfig' object has no attribute 'rope_theta'; with a rope_theta:
    torch.clamp: At least one of 'min' or 'max' must not be None; with a clip_qkv too: works
Cause: models/dbrx/modeling_dbrx.py, 184, reads `attn_config.rope_theta`, a field that
    `DbrxAttentionConfig` has not and that nothing uses; the attention's forward passes `clip_qkv`,
    None by default and documented as optional, to `clamp` as both bounds.
Fix: models/dbrx/modeling_dbrx.py, 184: without the field that nothing uses; 205: clamped where
    there is something to clamp to
Upstream: not found by searching for "DbrxAttentionConfig has no attribute rope_theta" and "dbrx
    clip_qkv clamp None"
"""

import inspect
import sys
import textwrap

import torch
from transformers import DbrxConfig, DbrxForCausalLM
from transformers.models.dbrx.modeling_dbrx import DbrxAttention


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
    change(DbrxAttention.__init__, ("self.rope_theta = attn_config.rope_theta\n", "\n"))
    change(
        DbrxAttention.forward,
        (
            "    qkv_states = qkv_states.clamp(",
            "    if self.clip_qkv is not None:\n        qkv_states = qkv_states.clamp(",
        ),
    )


if "--fixed" in sys.argv:
    fix()

small = dict(vocab_size=64, d_model=32, n_heads=4, n_layers=1, max_seq_len=16)
small["ffn_config"] = {"hidden_size": 32, "ffn_hidden_size": 64}
told = []
# As documented; with the field that is missed; with the other that is missed then.
for attention in ({}, {"rope_theta": 10000.0}, {"rope_theta": 10000.0, "clip_qkv": 8.0}):
    try:
        model = DbrxForCausalLM(DbrxConfig(**small, attn_config=attention))
        model(torch.tensor([[1, 2, 3]]))
        told.append("works")
    except (AttributeError, RuntimeError, ValueError) as error:
        told.append(str(error).splitlines()[0])
print("expected: a model of default attention can be built and run")
print(f"observed: {told[0]}; with a rope_theta: {told[1]}; with a clip_qkv too: {told[2]}")
sys.exit(told[0] != "works")
