"""After generation, Qwen3-VL and kin give embeddings the position offsets of the batch before.

Claims: F1, F2
Types: cohere_compass, cosmos3_edge, cosmos3_omni, ernie4_5_vl_moe, glm46v, glm4v, glm4v_moe,
    glm_ocr, glmga, hy_v4_vl, minicpmv4_7, paddleocr_vl, qwen2_5_vl, qwen2_vl, qwen3_5,
    qwen3_5_moe, qwen3_vl, qwen3_vl_moe, qwen4_exp
Met by: whoever calls generate() with several prompts, and then the model with inputs_embeds alone,
    as for gradients with respect to the input or soft prompts
Seen in: transformers 5.24.0
Expected: a prompt given as embeddings has one answer, before and after another batch
Observed: after a batch of two, a prompt of one row raises "cannot reshape tensor of 0 elements"
Cause: models/qwen3_vl/modeling_qwen3_vl.py, 1120: `rope_deltas` of the last batch are used for any
    pass without ids, also for one that continues no cache
Fix: models/qwen3_vl/modeling_qwen3_vl.py, 1120: only where a cache is continued
Upstream: not found by searching for "rope_deltas stale inputs_embeds repeat_interleave"; the
    comment above the line names the same fault for passes with ids
"""

import inspect
import sys
import textwrap

import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel


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
        Qwen3VLModel.compute_3d_position_ids,
        ("and (cache_length > 0 or input_ids is None)", "and cache_length > 0"),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 32, "vocab_size": 64}
rotation = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
text = sizes | heads | {"num_hidden_layers": 2, "rope_parameters": rotation}
vision = sizes | {
    "depth": 1,
    "num_heads": 2,
    "out_hidden_size": 32,
    "deepstack_visual_indexes": [0],
}
config = Qwen3VLConfig(text_config=text, vision_config=vision, image_token_id=60)
model = Qwen3VLForConditionalGeneration(config).eval()
ids = torch.arange(3, 9).reshape(2, 3)
mask = torch.ones_like(ids)
one = model.get_input_embeddings()(ids[:1]).detach()

with torch.no_grad():
    before = model(inputs_embeds=one).logits
    model.generate(ids, attention_mask=mask, max_new_tokens=2, do_sample=False, pad_token_id=0)
    try:
        off = (model(inputs_embeds=one).logits - before).abs().max().item()
        observed = f"logits that are off by {off:.2g}"
    except RuntimeError as error:
        off, observed = float("inf"), str(error)
print("expected: a prompt given as embeddings has one answer, before and after another batch")
print(f"observed: {observed}")
sys.exit(off > 1e-4)
