"""Models in 8 bits whose checkpoints fuse weights are saved in a way that cannot be loaded.

Claims: G11 [8 bits]
Types: hrm_text, nemo_speechlm, unlimited_ocr
Met by: whoever quantises such a model by bitsandbytes and saves it
Seen in: transformers 5.23.0, 5.24.0
Expected: from_pretrained() loads what save_pretrained() saved
Observed: RuntimeError: We encountered some issues during automatic conversion of the weights.
Cause: core_model_loading.py, 1921: saving fuses q_proj.weight and its like again, as in the
    checkpoint, and leaves their scales (SCB) with the layers. Loading splits the fused weight and
    finds no weight beside the scales (integrations/bitsandbytes.py, 154).
Fix: core_model_loading.py, 1922: quantised weights keep the names of their layers
Upstream: not found by searching for "bitsandbytes 8bit save_pretrained WeightConverter Chunk
    fused qkv Bnb8bitDeserialize KeyError weight"; PR #45743 (closed) is about saving such weights
    at all
"""

import contextlib
import inspect
import io
import sys
import tempfile
import textwrap

import torch
from transformers import BitsAndBytesConfig, HrmTextConfig, HrmTextForCausalLM, logging
from transformers.core_model_loading import revert_weight_conversion


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
        revert_weight_conversion,
        ("model: PreTrainedModel, ", "model, "),  # imported for type checkers only
        (
            "    for original_key, tensor in state_dict:\n",
            "    integers = (torch.int8, torch.uint8)\n"
            "    packed = [key for key, tensor in state_dict if tensor.dtype in integers]\n"
            '    packed = {key.partition(".weight")[0] for key in packed}\n'
            "    for original_key, tensor in state_dict:\n",
        ),
        (
            "        if source_pattern is not None:\n",
            '        layer = original_key.partition(".weight")[0]\n'
            "        if source_pattern is not None and layer not in packed:\n",
        ),
    )


if "--fixed" in sys.argv:
    fix()

logging.set_verbosity(logging.CRITICAL)
torch.manual_seed(0)
config = HrmTextConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    head_dim=8,
    pad_token_id=0,
)
eight = BitsAndBytesConfig(load_in_8bit=True)
observed = "it does"
with tempfile.TemporaryDirectory() as plain, tempfile.TemporaryDirectory() as quantised:
    HrmTextForCausalLM(config).save_pretrained(plain)
    load = HrmTextForCausalLM.from_pretrained
    with contextlib.redirect_stderr(io.StringIO()):
        model = load(plain, quantization_config=eight, device_map={"": "cpu"})
        model.save_pretrained(quantised)
        try:
            again = load(quantised, device_map={"": "cpu"})
        except RuntimeError as error:
            observed = f"RuntimeError: {str(error).partition(' For details')[0]}"
        else:
            ids = torch.arange(2, 10)[None]
            with torch.no_grad():
                off = (model(ids).logits - again(ids).logits).abs().max().item()
            observed = "it does" if off == 0 else f"logits off by {off:.2g}"
print("expected: from_pretrained() loads what save_pretrained() saved")
print(f"observed: {observed}")
sys.exit(observed != "it does")
