"""Phi-4-multimodal drops its cache at a certain length, and goes on from the last token alone.

Claims: C4, G6, G7, G12
Types: phi4_multimodal
Met by: everyone who calls generate() past original_max_position_embeddings tokens (4096 by
    default): what follows is a continuation of one token, and of those generated after it
Seen in: transformers 5.23.0, 5.24.0
Expected: the same tokens with and without a cache
Observed: 4 of 8 tokens are the same before one differs, after a prompt of 13 and a length of 16
Cause: models/phi4_multimodal/modeling_phi4_multimodal.py, 1701: `prepare_inputs_for_generation`
    sets the cache to None, for the prompt to be read again by the angles of longer ones, and the
    base class (generation/utils.py, 693) goes on to cut the prompt to `next_sequence_length`, 1.
    Phi3 and PhiMoE set that to None too (models/phi3/modeling_phi3.py, 510). It happens with
    every rotation, also with one whose angles do not depend on the length.
Fix: models/phi4_multimodal/modeling_phi4_multimodal.py, 1701: nothing is cut where the cache is
    dropped, as in Phi3
Upstream: not found by searching for "phi4_multimodal prepare_inputs_for_generation
    next_sequence_length"; that Phi3 drops its cache is by PR #33129 (merged)
"""

import inspect
import sys
import textwrap

import torch
from transformers import Phi4MultimodalConfig, Phi4MultimodalForCausalLM


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
    drop = "    cache = None\n"
    if drop not in inspect.getsource(Phi4MultimodalForCausalLM.prepare_inputs_for_generation):
        drop = "    past_key_values = None\n"
    # Recompiled, the function has no cell of its class for super() to look at.
    base = "super(type(self), self).prepare_inputs_for_generation("
    change(
        Phi4MultimodalForCausalLM.prepare_inputs_for_generation,
        (drop, f'{drop}            kwargs["next_sequence_length"] = None\n'),
        ("super().prepare_inputs_for_generation(", base),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
model = Phi4MultimodalForCausalLM(
    Phi4MultimodalConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        original_max_position_embeddings=16,
        initializer_range=0.5,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
        vision_config=small | {"num_attention_heads": 2, "image_size": 56, "patch_size": 14},
        audio_config=small
        | {"num_attention_heads": 2, "num_blocks": 1, "nemo_conv_channels": 8, "input_size": 16},
    )
).eval()
ids = torch.randint(2, 64, (1, 13))
same = {"max_new_tokens": 8, "do_sample": False}
without = model.generate(ids, use_cache=False, **same)[0, 13:]
cached = model.generate(ids, use_cache=True, **same)[0, 13:]
equal = int((cached == without).long().cumprod(0).sum())
print("expected: the same tokens with and without a cache")
print(f"observed: {equal} of {len(without)} tokens are the same before one differs")
sys.exit(equal < len(without))
