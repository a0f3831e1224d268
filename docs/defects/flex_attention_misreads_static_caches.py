"""Under flex attention a static cache is attended to as if its newest tokens came later.

Claims: C2, C4
Types: llama
Met by: attn_implementation="flex_attention" with a static cache
Seen in: transformers 5.23.0, 5.24.0
Expected: logits on a static cache are those without a cache, whatever computes the attention
Observed: off by 6e-8 under sdpa, by 0.099 under flex attention; `generate` fails there (and works
    in 5.24.0)
Cause: cache_utils.py, 503: a static layer gives out the tensor of its length, which `update` adds
    to in place. A BlockMask keeps it as the queries' offset (masking_utils.py, 854) and reads it
    while it attends, when the new tokens are counted already: queries see the tokens after them.
    generation/utils.py, 745: `contiguous` is called on a BlockMask, which has none; 5.24.0 calls
    it on tensors only.
Fix: masking_utils.py, 854: the offset is copied; generation/utils.py, 745: tensors only are made
    contiguous
Upstream: pull request 46802 repairs the shape of the same offset; this is not found by searching
    for "flex_attention StaticCache wrong output cumulative_length q_offset"
"""

import inspect
import sys
import textwrap

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache, masking_utils
from transformers.generation import GenerationMixin


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
        masking_utils._preprocess_mask_arguments,
        (
            "q_offset.to(inputs_embeds.device) if isinstance",
            "q_offset.to(inputs_embeds.device, copy=True) if isinstance",
        ),
    )
    prepare = GenerationMixin.prepare_inputs_for_generation
    line = "attention_mask = attention_mask.contiguous() if attention_mask is not None else None"
    if line in inspect.getsource(prepare):  # not in transformers 5.24, which has this part
        change(
            prepare,
            (
                line,
                "attention_mask = (\n"
                "                    attention_mask.contiguous()\n"
                "                    if isinstance(attention_mask, torch.Tensor)\n"
                "                    else attention_mask\n"
                "                )",
            ),
        )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=101,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
model = LlamaForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
ids = torch.randint(0, 101, (1, 12))
off, generates = {}, {}
for name in ("sdpa", "flex_attention"):
    model.set_attn_implementation(name)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        cache = StaticCache(config=config, max_cache_len=16)
        halves = [model(half, **{keyword: cache}).logits for half in ids.split(6, dim=1)]
        off[name] = (torch.cat(halves, 1) - model(ids).logits).abs().max().item()
        try:
            model.generate(ids, max_new_tokens=2, cache_implementation="static", pad_token_id=0)
        except AttributeError:
            generates[name] = False
        else:
            generates[name] = True
how = "works" if generates["flex_attention"] else "fails"
print("expected: logits on a static cache are those without a cache, whatever attends")
print(
    f"observed: off by {off['sdpa']:.1g} under sdpa, by {off['flex_attention']:.2g} under flex "
    f"attention; `generate` {how} there"
)
sys.exit(off["flex_attention"] > 1e-3 or not generates["flex_attention"])
