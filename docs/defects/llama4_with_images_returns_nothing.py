"""Llama 4 with its vision part raises at the end of every pass.

Claims: none
Types: llama4
Met by: whoever runs Llama4ForConditionalGeneration, the class that Llama 4's checkpoints name
Seen in: transformers 5.24.0
Expected: logits
Observed: AttributeError: 'MoeCausalLMOutputWithPast' object has no attribute 'image_outputs'
Cause: models/llama4/modeling_llama4.py, 1318: `image_outputs` is read from the text model's
    output, which has none; those of the image are in `mm_encoder_outputs`. In other types the line
    reads the output of a body, which passes them on.
Fix: models/llama4/modeling_llama4.py, 1318: they are those of `mm_encoder_outputs`
Upstream: not found by searching for "Llama4ForConditionalGeneration MoeCausalLMOutputWithPast
    image_outputs"
"""

import inspect
import sys
import textwrap

import torch
from transformers import Llama4Config, Llama4ForConditionalGeneration


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
        Llama4ForConditionalGeneration.forward,
        ("image_outputs=outputs.image_outputs", 'image_outputs=mm_encoder_outputs.get("image")'),
    )


if "--fixed" in sys.argv:
    fix()

sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
experts = {"intermediate_size_mlp": 64, "num_local_experts": 2}
text = sizes | heads | experts | {"vocab_size": 64, "pad_token_id": 0}
vision = sizes | {"num_attention_heads": 4, "projector_input_dim": 32, "projector_output_dim": 32}
vision |= {"image_size": 28, "vision_output_dim": 32}
model = Llama4ForConditionalGeneration(Llama4Config(text_config=text, vision_config=vision)).eval()
observed = "logits"
with torch.no_grad():
    try:
        model(input_ids=torch.arange(3, 9)[None])
    except AttributeError as error:
        observed = f"AttributeError: {error}"
print("expected: logits")
print(f"observed: {observed}")
sys.exit(observed != "logits")
