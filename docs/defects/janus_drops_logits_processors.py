"""Janus' generate() drops the caller's logits processors when it writes text.

Claims: none
Types: janus
Met by: whoever passes logits_processor to generate(), as for constrained decoding
Seen in: transformers 5.23.0, 5.24.0
Expected: the processor is called for every new token: 3 times
Observed: 0 times
Cause: models/janus/modeling_janus.py, 1134: in text mode the parent's generate() gets every
    argument but `logits_processor`
Fix: models/janus/modeling_janus.py, 1137: it gets that, too
Upstream: not found by searching for "Janus generate logits_processor ignored"
"""

import inspect
import sys
import textwrap

import torch
from transformers import JanusConfig, JanusForConditionalGeneration, LogitsProcessorList, logging


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
    inputs = "generation_config=generation_config,\n            guidance_scale=None,"
    change(
        JanusForConditionalGeneration.generate,
        (inputs, f"logits_processor=logits_processor,\n            {inputs}"),
    )


if "--fixed" in sys.argv:
    fix()

logging.set_verbosity_error()
torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
text = sizes | {"model_type": "llama", "vocab_size": 64, "intermediate_size": 64}
vision = sizes | {"image_size": 32, "projection_dim": 32}
codes = {"projection_dim": 32, "image_token_embed_dim": 32, "num_embeddings": 64}
codes |= {"base_channels": 32, "latent_channels": 32, "num_patches": 2}
config = JanusConfig(text_config=text, vision_config=vision, vq_config=codes, image_token_id=60)
model = JanusForConditionalGeneration(config).eval()
calls = []


def processor(ids, scores):
    """A logits processor that changes nothing."""
    calls.append(ids.shape[1])
    return scores


model.generate(
    torch.arange(3, 9)[None],
    logits_processor=LogitsProcessorList([processor]),
    max_new_tokens=3,
    min_new_tokens=3,
    do_sample=False,
)
print("expected: the processor is called for every new token: 3 times")
print(f"observed: {len(calls)} times")
sys.exit(len(calls) != 3)
