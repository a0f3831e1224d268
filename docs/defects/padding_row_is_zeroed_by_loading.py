"""Youtu and Funnel set the embedding of the padding token to zero while they load it.

Claims: H1
Types: funnel, youtu
Met by: whoever loads a checkpoint whose row of the padding token is not zero. Training a tied
    embedding leaves it so, and the logit of that token is then 0 in place of its own
Seen in: transformers 5.23.0, 5.24.0
Expected: the row that was saved
Observed: a row of zeros, of which the file has the norm 5.7
Cause: models/youtu/modeling_youtu.py, 464: `init.zeros_` leaves alone what was loaded, by a flag
    on the parameter; a row of it is another tensor, without the flag. `PreTrainedModel` checks the
    flag itself (modeling_utils.py, 2334 in 5.24). Funnel has the same
    (models/funnel/modeling_funnel.py, 703)
Fix: models/youtu/modeling_youtu.py, 463, and models/funnel/modeling_funnel.py, 702: check the flag
Upstream: not found by searching for "zeroes padding_idx row when loading _init_weights Youtu"
"""

import inspect
import sys
import tempfile
import textwrap

import torch
from transformers import YoutuConfig, YoutuForCausalLM
from transformers.models.funnel.modeling_funnel import FunnelPreTrainedModel
from transformers.models.youtu.modeling_youtu import YoutuPreTrainedModel


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
    loaded = 'not getattr({}.weight, "_is_hf_initialized", False)'
    for owner, module in (
        (YoutuPreTrainedModel, "module"),
        (FunnelPreTrainedModel, "module.word_embeddings"),
    ):
        old = f"if {module}.padding_idx is not None"
        change(owner._init_weights, (f"{old}:", f"{old} and {loaded.format(module)}:"))


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = YoutuConfig(
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1},
    **{"num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16},
    **{"qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "tie_word_embeddings": True},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
)
model = YoutuForCausalLM(config)
with torch.no_grad():
    model.get_input_embeddings().weight[0] = 1
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    loaded = YoutuForCausalLM.from_pretrained(folder)
saved, row = (each.get_input_embeddings().weight[0].norm().item() for each in (model, loaded))
print(f"expected: a row of norm {saved:.2g}, as it was saved")
print(f"observed: a row of norm {row:.2g}")
sys.exit(abs(saved - row) > 1e-6)
