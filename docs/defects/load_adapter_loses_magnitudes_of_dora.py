"""Transformers loads a DoRA adapter without its magnitudes.

Claims: G10 [transformers, DoRA], G10 [its own loader], G10 [the other loader, DoRA]
Types: *
Met by: whoever trains an adapter with use_dora=True and loads it by load_adapter, or by
    from_pretrained of the adapter's folder: the magnitudes are those of a new adapter. A report of
    missing and unexpected keys is printed. peft's own PeftModel.from_pretrained loads them
Seen in: transformers 5.23.0, 5.24.0
Expected: what is loaded is what was saved
Observed: 2 of 6 weights of the adapter differ, and the logits by 0.03 of their length
Cause: integrations/peft.py, 240: files say `lora_magnitude_vector`, modules say
    `lora_magnitude_vector.default.weight`. Adapters' names get `.default`, which is all that
    `lora_A.weight` lacks; peft adds `.weight` to magnitudes where it loads them itself.
Fix: integrations/peft.py, 240: names of magnitudes get `.weight`, too
Upstream: not found by searching for "load_adapter use_dora lora_magnitude_vector missing keys";
    diffusers#7371 has the same symptom
"""

import inspect
import logging
import sys
import tempfile
import textwrap

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations import peft as integration

logging.disable(logging.WARNING)


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
    old = "    from peft.utils.other import AuxiliaryTrainingWrapper\n"
    name = r'rf"(lora_magnitude_vector\.{adapter_name})$", r"\1.weight"'
    new = f"    peft_weight_conversions.append(WeightRenaming({name}))\n"
    change(integration.PeftAdapterMixin.load_adapter, (old, old + new))


if "--fixed" in sys.argv:
    fix()

# transformers 5.24 asks for peft 0.22; LoRA works with older ones too.
integration.MIN_PEFT_VERSION = "0.20.0"
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=4,
)
again = LlamaForCausalLM(config).eval()
base = LlamaForCausalLM(config)
base.load_state_dict(again.state_dict())
settings = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], use_dora=True)
model = get_peft_model(base, settings)
with torch.no_grad():
    for weight in model.parameters():
        if weight.requires_grad:
            weight += 0.1 * torch.randn_like(weight)
model.eval()
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder, save_embedding_layers=False)
    again.load_adapter(folder)
saved = {name: weight for name, weight in base.named_parameters() if "lora_" in name}
loaded = dict(again.named_parameters())
lost = [name for name, weight in saved.items() if not torch.equal(weight, loaded[name])]
with torch.no_grad():
    right, now = (each(torch.arange(8)[None]).logits for each in (base, again))
off = (now - right).norm() / right.norm()
print("expected: what is loaded is what was saved")
print(f"observed: {len(lost)} of {len(saved)} weights of the adapter differ: {lost[:1]}")
print(f"the logits are off by {off:.2g} of their length")
sys.exit(len(lost) > 0)
