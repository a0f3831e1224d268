"""RoBERTa and its relatives generate with positions that they never see otherwise.

Claims: C4, G6, G7
Types: roberta, camembert, data2vec-text, xlm-roberta, xlm-roberta-xl, roberta-prelayernorm, xmod
Met by: everyone who calls generate() on such a decoder
Seen in: transformers 5.23.0
Expected: generate() sees the logits that a forward pass gives (positions 2, 3, …)
Observed: logits off by 2.5; from those of position_ids 0, 1, … by 8e-07
Cause: generation/utils.py, 906: `_prepare_position_ids_for_generation` counts from 0 and passes
    position_ids on; the models' own positions begin at padding_idx + 1
    (models/roberta/modeling_roberta.py, 142), so rows 0 and 1 of the table, 1 being the padding's
    own, are read instead. A forward pass with positions 0, 1, … gives what generate() sees.
Fix: generation/utils.py, 906: these types override `_prepare_position_ids_for_generation` and add
    padding_idx + 1
Upstream: the same mistake of `DataCollatorWithFlattening` was issue #47496, mended by PR #47525
    (merged); generate() not found by searching for "_prepare_position_ids_for_generation roberta
    padding_idx" (PR #35044, merged in 2024, made xlm-roberta-xl pass such positions)
"""

import sys

import torch
import transformers
from transformers import GenerationMixin, RobertaConfig, RobertaForCausalLM


def fix():
    """Apply the fix to transformers as it is installed."""

    def prepare(self, inputs_tensor, model_kwargs):
        places = GenerationMixin._prepare_position_ids_for_generation
        return places(self, inputs_tensor, model_kwargs) + self.config.pad_token_id + 1

    names = "Roberta Camembert Data2VecText XLMRoberta XLMRobertaXL RobertaPreLayerNorm Xmod"
    for name in names.split():
        getattr(transformers, f"{name}ForCausalLM")._prepare_position_ids_for_generation = prepare


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = RobertaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    initializer_range=0.3,
    is_decoder=True,
)
model = RobertaForCausalLM(config).eval()
ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
given = dict(max_new_tokens=1, do_sample=False, output_logits=True, return_dict_in_generate=True)
with torch.no_grad():
    generated = model.generate(ids, attention_mask=torch.ones_like(ids), **given).logits[0][0]
    forward = model(ids).logits[0, -1]
    from_0 = model(ids, position_ids=torch.arange(6)[None]).logits[0, -1]
off, same = ((generated - x).abs().max().item() for x in (forward, from_0))
print("expected: generate() sees the logits that a forward pass gives (positions 2, 3, …)")
print(f"observed: logits off by {off:.2g}; from those of position_ids 0, 1, … by {same:.0e}")
sys.exit(off > 1e-3)
