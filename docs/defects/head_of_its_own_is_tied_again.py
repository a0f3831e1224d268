"""A head that a checkpoint stores apart from the embedding is lost by the next tie_weights().

Claims: C10
Types: *
Met by: whoever resizes the embedding, or ties weights again, of a checkpoint with two tables whose
    config.json says tie_word_embeddings. Loading warns, keeps both, and leaves the configuration
Seen in: transformers 5.23.0, 5.24.0
Expected: the head that was loaded
Observed: the input's embedding, after resize_token_embeddings() as after tie_weights()
Cause: modeling_utils.py, 2584 in 5.24: loading takes the head off the model's list of tied
    weights, and a later call makes the list again from the configuration (line 2555)
Fix: modeling_utils.py, 2584 in 5.24: loading sets `tie_word_embeddings` of the configuration to
    False, as its warning tells users to
Upstream: transformers#45127
"""

import inspect
import logging
import sys
import tempfile
import textwrap

import torch
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM, PreTrainedModel


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
    old = "self.all_tied_weights_keys.pop(target_param_name)"
    new = "self.config.get_text_config(decoder=True).tie_word_embeddings = False"
    change(PreTrainedModel.tie_weights, (old, f"{old}; {new}"))


if "--fixed" in sys.argv:
    fix()

logging.disable()  # it warns of the two tables
torch.manual_seed(0)
config = LlamaConfig(
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False},
)
model = LlamaForCausalLM(config)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    both = AutoConfig.from_pretrained(folder, tie_word_embeddings=True)
    one, other = (LlamaForCausalLM.from_pretrained(folder, config=both) for _ in range(2))
assert torch.equal(one.lm_head.weight, model.lm_head.weight)
one.tie_weights()
other.resize_token_embeddings(70)
lost = [not torch.equal(each.lm_head.weight[:64], model.lm_head.weight) for each in (one, other)]
print("expected: the head that was loaded")
print(f"observed: {'another' if any(lost) else 'the same'} (tie_weights, resize: {lost})")
sys.exit(any(lost))
