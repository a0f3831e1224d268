"""Gemma 4 in bfloat16 refuses embeddings out of its own table.

Claims: none
Types: gemma4, gemma4_text
Met by: whoever passes inputs_embeds alone to a model with per-layer embeddings in bfloat16 or
    float16; Assay's twins in float64
Seen in: transformers 5.23.0, 5.24.0
Expected: embeddings out of the model's own table are taken
Observed: in float32 taken, in bfloat16 refused
Cause: models/gemma4/modeling_gemma4.py, 1739: the ids are looked for by equality with `weight *
    hidden_size**0.5`, the table scaled by a Python number; the table itself scales with that
    number rounded to the weights' dtype (1439): 39.25 for 39.19 at hidden size 1536. Where the
    root is exact (hidden size 1024) the difference is gone.
Fix: models/gemma4/modeling_gemma4.py, 1739: the look-up scales by the embedding's own factor,
    rounded as it is there (1439)
Upstream: issue #45874 (closed) is about the memory that the look-up takes; PR #45927 (merged) lets
    per_layer_inputs be given; the refusal not found by searching for "do not exactly match the
    embedding weights bfloat16"
"""

import inspect
import sys
import textwrap

import torch
from transformers import AutoModelForCausalLM, Gemma4TextConfig
from transformers.models.gemma4.modeling_gemma4 import Gemma4TextModel


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
        Gemma4TextModel.get_per_layer_inputs,
        (
            "self.embed_tokens.weight[None, None, :, :] * self.config.hidden_size**0.5",
            "(self.embed_tokens.weight * self.embed_tokens.embed_scale.to("
            "self.embed_tokens.weight.dtype))",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = Gemma4TextConfig(
    vocab_size=64,
    vocab_size_per_layer_input=64,
    hidden_size=1536,
    hidden_size_per_layer_input=8,
    intermediate_size=64,
    num_hidden_layers=2,
    layer_types=["sliding_attention", "full_attention"],
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    global_head_dim=8,
    num_kv_shared_layers=0,
)
ids = torch.randint(3, 64, (1, 6))
told = {}
for dtype in (torch.float32, torch.bfloat16):
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    try:
        model(inputs_embeds=model.get_input_embeddings()(ids))
        told[dtype] = "taken"
    except RuntimeError as error:
        told[dtype] = "refused" if "do not exactly match" in str(error) else str(error)
print("expected: embeddings out of the model's own table are taken")
print(f"observed: in float32 {told[torch.float32]}, in bfloat16 {told[torch.bfloat16]}")
sys.exit(told[torch.bfloat16] == "refused")
