"""A tensor is read from the last shard that holds it, and not from the one that the index names.

Claims: H1
Types: *
Met by: whoever loads a folder in which a shard holds more than the index assigns to it: one reused
    from another checkpoint, or below a file of changed weights. Such a folder is valid, as the
    index names one shard for each tensor
Seen in: transformers 5.23.0, 5.24.0
Expected: the tensor of the shard that the index names
Observed: that of the other shard, and no warning
Cause: modeling_utils.py, 4582 in 5.24: the index chooses files alone, and each tensor of a file
    replaces one of its name that an earlier file had
Fix: modeling_utils.py, 4581 in 5.24: leave out tensors that the index assigns to another file
Upstream: not found in transformers by searching for "index weight_map ignored shard extra
    tensors"; vllm#54230 repairs the same in vLLM
"""

import inspect
import json
import sys
import tempfile
import textwrap
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
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
    old = "for k in file_pointer.keys():"
    index = "(load_config.sharded_metadata or {}).get('weight_map', {})"
    here = "os.path.basename(file)"
    own = f"[k for k in file_pointer.keys() if {index}.get(k, {here}) == {here}]"
    change(PreTrainedModel._load_pretrained_model, (old, f"for k in {own}:"))


if "--fixed" in sys.argv:
    fix()

config = LlamaConfig(
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
)
model = LlamaForCausalLM(config)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder, max_shard_size="20KB")
    index = json.loads(Path(folder, "model.safetensors.index.json").read_text())["weight_map"]
    name, file = min(index.items(), key=lambda each: each[1])
    last = Path(folder, max(index.values()))
    stale = {name: torch.zeros_like(model.get_parameter(name))}
    save_file(load_file(last) | stale, last, metadata={"format": "pt"})
    loaded = LlamaForCausalLM.from_pretrained(folder)
right = torch.equal(loaded.get_parameter(name), model.get_parameter(name))
print(f"expected: {name} of {file}, which the index names")
print(f"observed: that of {file if right else last.name}")
sys.exit(not right)
