"""Weights saved in shards into a folder with an older single file are lost: the old one is loaded.

Claims: H1
Types: *
Met by: whoever saves a model again into its folder with a max_shard_size, or once it has grown
    beyond 50 GB, without a warning
Seen in: transformers 5.23.0, 5.24.0
Expected: the weights that were saved last
Observed: those that were saved first
Cause: modeling_utils.py, 3571 in 5.24: saving removes shards of a former save and no single file,
    and loading prefers a single file to an index (line 591)
Fix: modeling_utils.py, 3571 in 5.24: remove a single file that this save does not write, too
Upstream: not found in transformers by searching for "save_pretrained leaves stale
    model.safetensors when saving sharded"; diffusers#14769 is its counterpart, with PR #14774
"""

import inspect
import sys
import tempfile
import textwrap

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel


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
    old = "reg.fullmatch(filename_no_suffix) is not None"
    change(PreTrainedModel.save_pretrained, (old, f"({old} or filename == weights_name)"))


if "--fixed" in sys.argv:
    fix()

config = LlamaConfig(
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
)
first, last = LlamaForCausalLM(config), LlamaForCausalLM(config)
with tempfile.TemporaryDirectory() as folder:
    first.save_pretrained(folder)
    last.save_pretrained(folder, max_shard_size="20KB")
    loaded = LlamaForCausalLM.from_pretrained(folder)
equal = [torch.equal(loaded.lm_head.weight, each.lm_head.weight) for each in (first, last)]
print("expected: the weights that were saved last")
print(f"observed: those that were saved {'first' if equal[0] else 'last'}")
sys.exit(not equal[1])
