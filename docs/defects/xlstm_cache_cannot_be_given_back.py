"""generate() cannot go on from a cache of xLSTM.

Claims: G7
Types: xlstm
Met by: whoever keeps the cache of a prefix or of a conversation's turns for generate()
Seen in: transformers 5.23.0, 5.24.0
Expected: the logits of the whole prompt, from the cache of its first half
Observed: AttributeError: 'xLSTMCache' object has no attribute 'is_compileable'
Cause: generation/utils.py, 2458: generate() asks every cache whether a pass over it can be
    compiled, and in 5.24 also whether it is linear attention alone (line 4307). xLSTM's
    (models/xlstm/modeling_xlstm.py, 1305) is no `Cache` and says neither; nor has it a
    method for its length, which it counts as `seqlen_offset`.
Fix: models/xlstm/modeling_xlstm.py, 1305: the cache is not compileable, and has a length;
    generation/utils.py, 4289: the prompt is cut by it (states_alone_have_no_length.py)
Upstream: not found by searching for "xLSTMCache object has no attribute is_compileable"
"""

import inspect
import sys
import textwrap

import torch
from transformers import xLSTMConfig, xLSTMForCausalLM
from transformers.generation import GenerationMixin
from transformers.models.xlstm.modeling_xlstm import xLSTMCache, xLSTMModel

ARGUMENTS = inspect.signature(xLSTMModel.forward).parameters
CACHE = "cache" if "cache" in ARGUMENTS else "cache_params"


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
    xLSTMCache.is_compileable, xLSTMCache.is_linear = False, [True]
    xLSTMCache.get_seq_length = lambda self, layer_idx=0: int(self.seqlen_offset)
    if CACHE == "cache":
        old, new = "if cache is not None and not all(cache.is_linear):", "if cache is not None:"
    else:
        old = 'cache = model_kwargs.get("past_key_values")'
        new = f'{old} or model_kwargs.get("cache_params")'
    change(GenerationMixin._prefill, (old, new))


if "--fixed" in sys.argv:
    fix()


def logits(ids, **more):
    """The first logits that generate() chooses a token by."""
    settings = {"max_new_tokens": 1, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    settings |= {"return_dict_in_generate": True, "output_logits": True}
    mask = torch.ones_like(ids)  # as tokenizers give it
    return model.generate(ids, attention_mask=mask, **settings, **more).logits[0]


torch.manual_seed(0)
sizes = {"vocab_size": 64, "hidden_size": 128, "num_heads": 4, "num_hidden_layers": 2}
model = xLSTMForCausalLM(xLSTMConfig(**sizes)).eval()
for weight in model.parameters():
    if weight.ndim == 2:
        torch.nn.init.normal_(weight, std=0.1)
ids = torch.randint(1, 64, (1, 12))
with torch.no_grad():
    whole = logits(ids, use_cache=False)
    prefix = model(ids[:, :6], use_cache=True)[CACHE]
    try:
        off = (logits(ids, **{CACHE: prefix}) - whole).abs().max().item()
    except AttributeError as error:
        off = error
print("expected: the logits of the whole prompt, from the cache of its first half")
print(f"observed: {off if isinstance(off, Exception) else f'off by {off:.2g}'}")
sys.exit(not isinstance(off, float) or off > 1e-3)
