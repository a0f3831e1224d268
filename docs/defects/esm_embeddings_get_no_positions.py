"""ESM puts embeddings that it is given in place of its whole embedding layer.

Claims: C9
Types: esm
Met by: whoever passes inputs_embeds: gradients with respect to the input, soft prompts, protein
    design
Seen in: transformers 5.23.0, 5.24.0
Expected: the embeddings of ids give the logits of the ids
Observed: off by 6.1; turned round they give the same, turned round, to 3e-06
Cause: models/esm/modeling_esm.py, 708–715: only ids go through `self.embeddings`, which adds
    positions, scale of token_dropout and norm; `EsmEmbeddings.forward` takes inputs_embeds and is
    not asked. With the embeddings passed through `model.esm.embeddings(inputs_embeds=…)` first the
    difference is gone (0).
Fix: models/esm/modeling_esm.py, 708: what is given goes through `self.embeddings`, too
Upstream: not found as such; issue #40166 (open) and PR #40181 (merged) are about a crash in the
    path that is no longer taken
"""

import inspect
import sys
import textwrap

import torch
from transformers import EsmConfig, EsmForMaskedLM
from transformers.models.esm.modeling_esm import EsmModel


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
    line = "    attention_mask, encoder_attention_mask = self._create_attention_masks("
    change(
        EsmModel.forward,
        (
            line,
            "    else:\n"
            "        inputs_embeds = self.embeddings(\n"
            "            attention_mask=attention_mask,\n"
            "            position_ids=position_ids,\n"
            "            inputs_embeds=inputs_embeds,\n"
            f"        )\n\n{line}",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = EsmConfig(
    vocab_size=64,
    pad_token_id=1,
    mask_token_id=3,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=32,
    initializer_range=0.3,
)
model = EsmForMaskedLM(config).eval()
ids = torch.randint(4, 64, (1, 6))
with torch.no_grad():
    embeddings = model.get_input_embeddings()(ids)
    by_ids, by_embeddings = model(ids).logits, model(inputs_embeds=embeddings).logits
    turned = model(inputs_embeds=embeddings.flip(1)).logits.flip(1)
off, blind = ((x - by_embeddings).abs().max().item() for x in (by_ids, turned))
print("expected: the embeddings of ids give the logits of the ids")
print(f"observed: off by {off:.2g}; turned round they give the same, turned round, to {blind:.0e}")
sys.exit(off > 1e-3)
