"""NLLB-MoE's experts keep the capacity of the last evaluation when training goes on.

Claims: G3
Types: nllb-moe
Met by: whoever evaluates between steps of training: if a batch of evaluation has fewer tokens than
    expert_capacity, tokens of the next steps lose their experts
Seen in: transformers 5.23.0, 5.24.0
Expected: in training, logits are the same before and after a prompt of two tokens was evaluated
Observed: logits of 16 of 16 tokens differ
Cause: models/nllb_moe/modeling_nllb_moe.py, 273: in evaluation the router writes its capacity, a
    share of the tokens at hand, to self.expert_capacity, which is the one of training (276).
Fix: models/nllb_moe/modeling_nllb_moe.py, 273 to 280: the capacity of a pass is a local variable
Upstream: no thread found
"""

import inspect
import sys
import textwrap

import torch
from transformers import NllbMoeConfig, NllbMoeForConditionalGeneration
from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeTop2Router


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
        NllbMoeTop2Router.route_tokens,
        ("self.expert_capacity = math.ceil(", "expert_capacity = math.ceil("),
        ("self.expert_capacity = capacity if", "expert_capacity = capacity if"),
        ("torch.lt(locations1, self.expert_capacity)", "torch.lt(locations1, expert_capacity)"),
        ("torch.lt(locations2, self.expert_capacity)", "torch.lt(locations2, expert_capacity)"),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "num_experts": 4}
heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
widths = {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
rates = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
rates |= {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "moe_token_dropout": 0.0}
config = NllbMoeConfig(vocab_size=64, router_bias=False, **sizes, **heads, **widths, **rates)
config.encoder_sparse_step = config.decoder_sparse_step = 1
model = NllbMoeForConditionalGeneration(config)
ids = torch.randint(3, 64, (1, 16))
with torch.no_grad():
    before = model.train()(ids, decoder_input_ids=ids).logits
    model.eval()(ids[:, :2], decoder_input_ids=ids[:, :2])
    after = model.train()(ids, decoder_input_ids=ids).logits
changed = ((after - before).norm(dim=-1) > 1e-4 * before.norm(dim=-1)).sum().item()
print("expected: logits in training are the same before and after two tokens were evaluated")
print(f"observed: logits of {changed} of 16 tokens differ")
sys.exit(changed > 0)
