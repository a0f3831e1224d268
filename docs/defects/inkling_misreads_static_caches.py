"""Inkling misreads static caches.

Claims: C2, C3, C4, C5, G4
Types: inkling2, inkling2_loop, inkling2_loop_text, inkling2_text, inkling_mm_model, inkling_text
Met by: whoever calls generate() with cache_implementation="static"
Seen in: transformers 5.23.0, 5.24.0
Expected: generate() with a static cache sees the logits that it sees without
Observed: room for 7 tokens: logits off by 0.009, for 16: RuntimeError
Cause: models/inkling/modeling_inkling.py, 243: a static cache's `get_query_offset` gives the very
    tensor that counts what it holds, and `update` moves it on in place before the queries' places
    are made of it: they are too far by the length of the chunk. With `int(...)` around it the
    difference is gone within the window (5e-6). Where there is room for more than the window,
    masks of sliding layers are as wide as the room and biases as the window: an error.
    inkling2 has the same lines (models/inkling2/modeling_inkling2.py, 457 and 581). Nothing
    refuses the cache: `_can_compile_fullgraph = False` turns off compiling only. In 5.24.0
    inkling2 reads the count before it moves on; the masks' width is as it was.
Fix: models/inkling/modeling_inkling.py, 243, and models/inkling2/modeling_inkling2.py, 458 and
    582: a copy of the count; masking_utils.py, 1544: masks of hybrid sliding layers have the
    window; cache_utils.py, 1900: a hybrid layer with a static cache is no linear one, so that its
    mask has its room (as in 5.24.0)
Upstream: not found by searching for "Inkling static cache get_query_offset position bias"
"""

import inspect
import sys
import textwrap

import torch
from transformers import Cache, InklingForCausalLM, InklingTextConfig, masking_utils
from transformers.models.inkling.modeling_inkling import InklingAttention
from transformers.models.inkling2 import modeling_inkling2


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
    arguments = inspect.signature(InklingAttention.forward).parameters
    cache = "cache" if "cache" in arguments else "past_key_values"
    line = f"{cache}.get_query_offset(self.layer_idx)"
    change(InklingAttention.forward, (line, f"{line} + 0"))
    for attention in (
        modeling_inkling2.Inkling2SlidingAttention,
        modeling_inkling2.Inkling2FullAttention,
    ):
        if line in inspect.getsource(attention.forward):  # not in transformers 5.24
            change(attention.forward, (line, f"{line} + 0"))
    masks = masking_utils.LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING["hybrid_sliding"]
    masks["sliding_attention"] = masking_utils.create_sliding_window_causal_mask
    old = "isinstance(layer, LinearAttentionAndFullAttentionLayer)"
    if old in inspect.getsource(Cache.is_linear.fget):  # not in transformers 5.24
        new = old.replace("Layer)", "Layer | LinearAttentionAndStaticFullAttentionLayer)")
        change(Cache.is_linear.fget, (old, new))


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = InklingTextConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    layer_types=["hybrid_sliding", "hybrid"],
    mlp_layer_types=["sparse", "sparse"],
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    swa_num_attention_heads=4,
    swa_num_key_value_heads=2,
    swa_head_dim=8,
    sliding_window_size=8,
    moe_intermediate_size=64,
    n_routed_experts=4,
    num_experts_per_tok=2,
    initializer_range=0.3,
    log_scaling_n_floor=None,
)
model = InklingForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 4))
given = dict(do_sample=False, output_logits=True, return_dict_in_generate=True, eos_token_id=None)
said = {}
for new in (3, 12):
    plain = model.generate(ids, max_new_tokens=new, **given).logits[1]
    try:
        static = model.generate(ids, max_new_tokens=new, cache_implementation="static", **given)
        said[new] = f"logits off by {(static.logits[1] - plain).abs().max().item():.2g}"
    except RuntimeError as error:
        said[new] = type(error).__name__
print("expected: generate() with a static cache sees the logits that it sees without")
print(f"observed: room for 7 tokens: {said[3]}, for 16: {said[12]}")
sys.exit(not all("e-" in what for what in said.values()))
