"""EXAONE loaded by its own class, Llama's, is saved by EXAONE's names beside Llama's type.

Claims: none
Types: exaone
Met by: whoever loads EXAONE by LlamaForCausalLM, the class that its config.json names, and saves
    it: all weights but one are new ones when it is loaded again. Both loads print a warning
Seen in: transformers 5.24.0
Expected: what is saved is loaded again, with no weight missing
Observed: 20 weights are missing; in 8 bits: NotImplementedError: "normal_kernel_cpu" not
    implemented for 'Char'
Cause: configuration_utils.py, 1270: LlamaForCausalLM reads EXAONE's configuration as one of Llama,
    whose `model_type` stays "exaone"; weights are renamed by that (conversion_mapping.py, 2816),
    and back again when they are saved. `to_dict` writes the type of the class, "llama", which has
    no names to change. AutoModelForCausalLM keeps EXAONE's configuration, and saves as it loads.
Fix: configuration_utils.py, 1270: the type that is written is the configuration's own
Upstream: not found by searching for "EXAONE LlamaForCausalLM from_pretrained save_pretrained
    model_type llama wrong weight names missing keys"
"""

import inspect
import logging
import sys
import tempfile
import textwrap

import torch
from transformers import ExaoneConfig, LlamaForCausalLM, PreTrainedConfig


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
    change(PreTrainedConfig.to_dict, ("= self.__class__.model_type", "= self.model_type"))


if "--fixed" in sys.argv:
    fix()

logging.disable()  # it warns of the types
torch.manual_seed(0)
config = ExaoneConfig(
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "eos_token_id": 1},
)
with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as again:
    LlamaForCausalLM(config).save_pretrained(folder)
    LlamaForCausalLM.from_pretrained(folder).save_pretrained(again)
    _, told = LlamaForCausalLM.from_pretrained(again, output_loading_info=True)
missing = len(told["missing_keys"])
print("expected: what is saved is loaded again, with no weight missing")
print(f"observed: {missing} weights are missing")
sys.exit(missing > 0)
