"""Qwen-Omni reads a prompt by the position offsets of a batch that it read before.

Claims: C2, C3, C9, C11, F1, F2
Types: qwen2_5_omni_thinker, qwen3_omni_moe_thinker
Met by: whoever runs the thinker without attention_mask, by embeddings or with their own cache,
    after a batch with one
Seen in: transformers 5.23.0, 5.24.0
Expected: a prompt has one answer, before and after another batch
Observed: after a batch of two, a prompt of one row raises "cannot reshape tensor of 0 elements",
    or, with a cache, "Sizes of tensors must match"
Cause: models/qwen2_5_omni/modeling_qwen2_5_omni.py, 1818: offsets are computed, and kept in
    `rope_deltas`, only with ids and a mask. A pass that has no mask leaves those of the last batch
    where they are (1843); what continues its cache adds them (1831), as do passes by embeddings.
Fix: models/qwen2_5_omni/modeling_qwen2_5_omni.py, 1831: offsets count only where a cache is
    continued; 1843: they are cleared where none can be computed. The same in
    models/qwen3_omni_moe/modeling_qwen3_omni_moe.py, 1920.
Upstream: not found by searching for "Qwen2_5OmniThinker rope_deltas stale attention_mask"
"""

import inspect
import sys
import textwrap

import torch
from transformers import (
    DynamicCache,
    Qwen2_5OmniThinkerConfig,
    Qwen2_5OmniThinkerForConditionalGeneration,
)
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniThinkerModel


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
    nothing = "        position_ids = None\n"
    change(
        Qwen2_5OmniThinkerModel.compute_3d_position_ids,
        ("and (cache_length > 0 or input_ids is None)", "and cache_length > 0"),
        (nothing, f"{nothing}        self.rope_deltas = None\n"),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
rotation = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
text = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 64, "num_hidden_layers": 2}
text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_parameters": rotation}
vision = {"depth": 1, "num_heads": 2, "hidden_size": 32, "out_hidden_size": 32}
vision |= {"intermediate_size": 32}
sound = {"d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 2, "output_dim": 32}
sound |= {"encoder_ffn_dim": 32}
parts = {"text_config": text, "vision_config": vision, "audio_config": sound}
places = {"image_token_index": 60, "video_token_index": 61, "audio_token_index": 62}
config = Qwen2_5OmniThinkerConfig(**parts, **places)
config.vision_start_token_id = 59
model = Qwen2_5OmniThinkerForConditionalGeneration(config).eval()
ids = torch.arange(3, 9)[None]
with torch.no_grad():
    embedded = model.get_input_embeddings()(ids)
    expected = model(ids).logits
    model(ids.reshape(2, 3), attention_mask=torch.ones(2, 3, dtype=torch.long))
    try:
        off = (model(inputs_embeds=embedded).logits - expected).abs().max()
        cache = DynamicCache(config=config.get_text_config())
        halves = [model(half, cache=cache).logits for half in ids.split(3, 1)]
        off = max(off, (torch.cat(halves, 1) - expected).abs().max())
        observed = f"logits that are off by {off:.2g}"
    except RuntimeError as error:
        off, observed = float("inf"), str(error)
print("expected: a prompt has one answer, before and after another batch")
print(f"observed: {observed}")
sys.exit(bool(off > 1e-4))
