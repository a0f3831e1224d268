"""XLM and XLNet throw the attention mask away when they generate.

Claims: C4
Types: xlm, xlnet
Met by: generate() for prompts of unlike lengths
Seen in: transformers 5.23.0, 5.24.0
Expected: generate() gives a left-padded prompt the logits that it has alone
Observed: logits that are off by 13 (XLM), 2.8 (XLNet)
Cause: `prepare_inputs_for_generation` drops attention_mask, saying that forward computes it
    (models/xlm/modeling_xlm.py, 947; models/xlnet/modeling_xlnet.py, 1280): forward takes all to
    be content. XLM drops position_ids as well. With the mask, longer by the token that they add,
    and for XLM the positions passed on, the differences are gone (1e-6). Reformer does the same
    (models/reformer/modeling_reformer.py, 2276); its positions could not follow.
Fix: models/xlm/modeling_xlm.py, 947, and models/xlnet/modeling_xlnet.py, 1280: the mask is passed
    on, longer by the token that they add, and XLM counts positions by it
Upstream: not found by searching for "XLNet XLM generate left padding batch attention_mask ignored
    prepare_inputs_for_generation"
"""

import inspect
import sys
import textwrap

import torch
from transformers import XLMConfig, XLMWithLMHeadModel, XLNetConfig, XLNetLMHeadModel


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
        XLMWithLMHeadModel.prepare_inputs_for_generation,
        (
            'kwargs.pop("attention_mask", None)\n',
            'mask = kwargs.pop("attention_mask", None)\n'
            "    if mask is not None:\n"
            "        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)\n"
            '        model_inputs["attention_mask"] = mask\n'
            '        model_inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)\n',
        ),
    )
    change(
        XLNetLMHeadModel.prepare_inputs_for_generation,
        (
            'kwargs.pop("attention_mask", None)\n',
            'mask = kwargs.pop("attention_mask", None)\n'
            "    if mask is not None:\n"
            "        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)\n"
            '        model_inputs["attention_mask"] = mask[:, -sequence_length:]\n',
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
sizes = {"vocab_size": 64, "n_heads": 4, "n_layers": 2, "embed_init_std": 1.0, "init_std": 0.3}
xlm = XLMWithLMHeadModel(XLMConfig(emb_dim=32, pad_token_id=0, mask_token_id=1, **sizes))
sizes = {"vocab_size": 64, "n_head": 4, "n_layer": 2, "d_inner": 64, "initializer_range": 0.3}
xlnet = XLNetLMHeadModel(XLNetConfig(d_model=32, **sizes))
prompt, padding = torch.tensor([[11, 12, 13]]), torch.zeros(1, 3, dtype=torch.long)


def logits(model, ids, mask):
    """The scores of the first new token."""
    how = {"max_new_tokens": 1, "output_logits": True, "return_dict_in_generate": True}
    return model.eval().generate(ids, attention_mask=mask, do_sample=False, **how).logits[0]


off = []
for model in (xlm, xlnet):
    alone = logits(model, prompt, torch.ones_like(prompt))
    ids, ones = torch.cat([padding, prompt], 1), torch.ones_like(prompt)
    padded = logits(model, ids, torch.cat([padding, ones], 1))
    off.append((padded - alone).abs().max().item())
print("expected: generate() gives a left-padded prompt the logits that it has alone")
print(f"observed: logits that are off by {off[0]:.2g} (XLM), {off[1]:.2g} (XLNet)")
sys.exit(max(off) > 1e-3)
