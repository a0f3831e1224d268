"""RecurrentGemma's convolution reads padding.

Claims: C4, C5, G2, G3
Types: recurrent_gemma
Met by: everyone who calls generate() on a left-padded batch
Seen in: transformers 5.23.0, 5.24.0
Expected: generate() gives a left-padded prompt the logits that it has alone
Observed: logits that are off by 0.48
Cause: `RecurrentGemmaRecurrentBlock.forward` (models/recurrent_gemma/modeling_recurrent_gemma.py,
    414) takes an `attention_mask` and never uses it: the convolution over 4 tokens runs across the
    border of padding and prompt. The recurrence itself is reset where position_ids are 0. With the
    convolution's input set to 0 at padding the difference is gone (2e-6). A padding token whose
    embedding is 0, as with fresh weights, hides it in part.
Fix: models/recurrent_gemma/modeling_recurrent_gemma.py, 414: the convolution's input is set to 0
    at padding, of which the model passes on the 2-D mask
Upstream: issue #31201 (closed) asks about left padding of the attention mask; the convolution not
    found by searching for "recurrent_gemma left padding batch generation"
"""

import inspect
import sys
import textwrap

import torch
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM, masking_utils
from transformers.models.recurrent_gemma import modeling_recurrent_gemma


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
    modeling_recurrent_gemma.padding_of = masking_utils.create_recurrent_attention_mask
    change(
        modeling_recurrent_gemma.RecurrentGemmaModel.forward,
        (
            "    if isinstance(attention_mask, dict):\n",
            "    if isinstance(attention_mask, dict):\n"
            '        kwargs["padding"] = attention_mask.get("linear_attention")\n',
        ),
        (
            "    else:\n        causal_mask = ",
            "    else:\n"
            '        kwargs["padding"] = padding_of(self.config, inputs_embeds, attention_mask)\n'
            "        causal_mask = ",
        ),
    )
    change(
        modeling_recurrent_gemma.RecurrentGemmaRecurrentBlock.forward,
        (
            "    x_branch = x_branch.transpose(1, 2)\n",
            '    if (padding := kwargs.get("padding")) is not None:\n'
            "        x_branch = x_branch * padding[:, :, None].to(x_branch.dtype)\n"
            "    x_branch = x_branch.transpose(1, 2)\n",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = RecurrentGemmaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    lru_width=32,
    attention_window_size=8,
    w_init_variance_scale=1.0,
)
model = RecurrentGemmaForCausalLM(config).eval()
given = dict(max_new_tokens=1, do_sample=False, output_logits=True, return_dict_in_generate=True)
ids, mask = torch.tensor([[3, 3, 3, 5, 6], [7, 8, 9, 10, 11]]), torch.ones(2, 5).long()
mask[0, :3] = 0
alone = model.generate(ids[:1, 3:], **given).logits[0][0]
padded = model.generate(ids, attention_mask=mask, **given).logits[0][0]
off = (padded - alone).abs().max().item()
print("expected: generate() gives a left-padded prompt the logits that it has alone")
print(f"observed: logits that are off by {off:.2g}")
sys.exit(off > 1e-3)
