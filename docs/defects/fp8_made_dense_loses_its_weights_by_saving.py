"""FP8 weights that loading made dense are saved in FP8, and config.json says nothing of it.

Claims: C10
Types: *
Met by: whoever loads an FP8 checkpoint without a GPU, or with dequantize=True, and saves it
Seen in: transformers 5.23.0
Fixed in: transformers 5.24.0
Expected: what is saved is loaded again
Observed: 9 of 12 weights differ: they are the packed numbers without their scales
Cause: quantizers/base.py, 227: a model that loading made dense forgets its quantisation, but not
    the conversions by which it was loaded. Saving undoes those, and quantises
    (integrations/finegrained_fp8.py, `Fp8Dequantize.reverse_op`)
Fix: quantizers/base.py, 237: these conversions are forgotten, too, as 5.24.0 does
Upstream: PR #44983 made saving such a model possible
"""

import logging
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import FineGrainedFP8Config, LlamaConfig, LlamaForCausalLM
from transformers.quantizers.base import HfQuantizer


def fix():
    """Apply the fix to transformers as it is installed."""
    forget = HfQuantizer.remove_quantization_config

    def forgotten(self, model):
        forget(self, model)
        vars(model).pop("_weight_conversions", None)

    HfQuantizer.remove_quantization_config = forgotten


if "--fixed" in sys.argv:
    fix()

logging.disable()  # it reports unexpected keys
config = LlamaConfig(
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
)
with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as again:
    LlamaForCausalLM(config).save_pretrained(folder)
    stored = load_file(file := Path(folder, "model.safetensors"))
    for name in [each for each in stored if "_proj" in each]:
        scale = stored[name].abs().max().reshape(1, 1) / 448
        stored |= {
            f"{name}_scale_inv": scale,
            name: (stored[name] / scale).to(torch.float8_e4m3fn),
        }
    save_file(stored, file, metadata={"format": "pt"})
    config.quantization_config = FineGrainedFP8Config(
        weight_block_size=(16, 16), dequantize=True, modules_to_not_convert=["lm_head"]
    )
    config.save_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder)
    model.save_pretrained(again)
    loaded = LlamaForCausalLM.from_pretrained(again).state_dict()
lost = [name for name, own in model.state_dict().items() if not torch.equal(own, loaded[name])]
print("expected: what is saved is loaded again")
print(f"observed: {len(lost)} weights differ, such as {lost[:1]}")
sys.exit(bool(lost))
