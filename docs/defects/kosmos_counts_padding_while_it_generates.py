"""Kosmos-2.5 continues a left-padded prompt past the columns of its padding.

Claims: C4
Types: kosmos-2.5
Met by: whoever calls generate() with a cache, as is usual, on a left-padded batch
Seen in: transformers 5.23.0, 5.24.0
Expected: a prompt has the scores that it has alone: off by 0
Observed: off by 0.6
Cause: models/kosmos2_5/modeling_kosmos2_5.py, 1396: generate() drops the positions counted
    from the mask. The first pass counts them from the padding's ids, and each later token gets the
    number of columns in the cache, padding included (698).
Fix: models/kosmos2_5/modeling_kosmos2_5.py, 1396: they are kept, plus the table's offset
Upstream: not found by searching for "Kosmos2_5 generate left padding position_ids"
"""

import inspect
import sys
import textwrap

import torch
from transformers import Kosmos2_5Config, Kosmos2_5ForConditionalGeneration, logging
from transformers.models.kosmos2_5.modeling_kosmos2_5 import Kosmos2_5TextForCausalLM


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
    prepare = Kosmos2_5TextForCausalLM.prepare_inputs_for_generation
    old = 'model_inputs.pop("position_ids", None)'
    new = 'model_inputs["position_ids"] = model_inputs["position_ids"].contiguous() + 2'
    change(prepare, (old, new))


if "--fixed" in sys.argv:
    fix()

logging.set_verbosity_error()
torch.manual_seed(0)
text = {"vocab_size": 64, "embed_dim": 32, "ffn_dim": 64, "layers": 2, "attention_heads": 4}
vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 8}
vision |= {"num_attention_heads": 4, "patch_embed_hidden_size": 32}
config = Kosmos2_5Config(text_config=text | {"init_std": 0.3}, vision_config=vision)
model = Kosmos2_5ForConditionalGeneration(config).eval()
prompt = torch.arange(4, 9)[None]
padded = torch.cat([torch.full((1, 4), config.text_config.pad_token_id), prompt], dim=1)
how = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "output_logits": True}
scores = [
    torch.stack(
        model.generate(
            ids,
            attention_mask=(ids != config.text_config.pad_token_id).long(),
            return_dict_in_generate=True,
            pad_token_id=config.text_config.pad_token_id,
            **how,
        ).logits
    )
    for ids in (prompt, padded)
]
off = (scores[0] - scores[1])[:2].abs().max().item()
print("expected: a prompt has the scores that it has alone: off by 0")
print(f"observed: off by {off:.2g}")
sys.exit(off > 1e-3)
