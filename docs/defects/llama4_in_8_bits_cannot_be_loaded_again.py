"""Llama 4 in 8 bits is saved with its experts as one weight, and loaded with a layer for each.

Claims: G11 [8 bits]
Types: llama4, llama4_text
Met by: whoever quantises Llama 4 by bitsandbytes and saves it
Seen in: transformers 5.23.0, 5.24.0
Expected: from_pretrained() loads what save_pretrained() saved
Observed: NotImplementedError: "normal_kernel_cpu" not implemented for 'Char'
Cause: quantizers/base.py, 199: only a model that is loaded with quantised weights gets a layer for
    each expert (404, MODULES_TO_PATCH_FOR_QUANTIZATION). One that is quantised while it is loaded
    keeps its experts whole, and is saved so. Their layers then find no weights, and new ones of 8
    bits cannot be drawn.
Fix: quantizers/base.py, 407: bitsandbytes is not among the methods that divide the experts
Upstream: not found by searching for "Llama4 bitsandbytes 8bit save_pretrained normal_kernel_cpu
    Char"
"""

import contextlib
import io
import sys
import tempfile

import torch
from transformers import BitsAndBytesConfig, Llama4ForCausalLM, Llama4TextConfig, logging
from transformers.quantizers.base import MODULES_TO_PATCH_FOR_QUANTIZATION
from transformers.utils.quantization_config import QuantizationMethod


def fix():
    """Apply the fix to transformers as it is installed."""
    methods = MODULES_TO_PATCH_FOR_QUANTIZATION["Llama4TextExperts"]["quantization_methods"]
    methods.remove(QuantizationMethod.BITS_AND_BYTES)


if "--fixed" in sys.argv:
    fix()

logging.set_verbosity(logging.CRITICAL)
torch.manual_seed(0)
config = Llama4TextConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    intermediate_size_mlp=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_local_experts=2,
    pad_token_id=0,
)
eight = BitsAndBytesConfig(load_in_8bit=True)
observed = "it does"
with tempfile.TemporaryDirectory() as plain, tempfile.TemporaryDirectory() as quantised:
    Llama4ForCausalLM(config).save_pretrained(plain)
    load = Llama4ForCausalLM.from_pretrained
    with contextlib.redirect_stderr(io.StringIO()):
        model = load(plain, quantization_config=eight, device_map={"": "cpu"})
        model.save_pretrained(quantised)
        try:
            again = load(quantised, device_map={"": "cpu"})
        except NotImplementedError as error:
            observed = f"NotImplementedError: {error}"
        else:
            ids = torch.arange(2, 10)[None]
            with torch.no_grad():
                off = (model(ids).logits - again(ids).logits).abs().max().item()
            observed = "it does" if off == 0 else f"logits off by {off:.2g}"
print("expected: from_pretrained() loads what save_pretrained() saved")
print(f"observed: {observed}")
sys.exit(observed != "it does")
