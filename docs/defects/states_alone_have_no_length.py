"""A cache of states alone has no length: generate() reads a kept prompt again on top of it.

Claims: G7
Types: falcon_mamba, mamba, mamba2
Met by: whoever keeps the cache of a prefix or of a conversation's turns and gives generate() the
    whole sequence, as with other models; and generate() with prefill_chunk_size
Seen in: transformers 5.23.0, 5.24.0
Expected: the logits of the whole prompt, from the cache of its first half and in chunks
Observed: the cache's are off by 0.3; chunks: `get_seq_length` can only be called on Attention
    layers. In 5.23 chunks are refused: Cannot use prefill chunking without a cache
Cause: generation/utils.py, 4289: the prompt is cut by the length of the cache, which is looked for
    under `past_key_values`, and Mamba's is `cache_params`. In 5.24 it is found (`cache`, line
    4307), but a cache that is linear attention alone has no length, and the prompt is not cut.
    Chunks need the length as well (line 4388), and get_seq_length raises (cache_utils.py, 1774 in
    5.24).
Fix: the models count on the cache the tokens that they read, as xLSTM does
    (models/mamba/modeling_mamba.py, 674); cache_utils.py, 1774 in 5.24: that is the length
    of a cache of states alone; generation/utils.py, 4307 in 5.24: any cache's length cuts
Upstream: not found by searching for "get_seq_length can only be called on Attention layers Mamba
    prefill_chunk_size generate"
"""

import inspect
import sys
import textwrap

import torch
from transformers import Mamba2Config, Mamba2ForCausalLM
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.models.falcon_mamba.modeling_falcon_mamba import FalconMambaModel
from transformers.models.mamba.modeling_mamba import MambaModel
from transformers.models.mamba2.modeling_mamba2 import Mamba2Model

ARGUMENTS = inspect.signature(Mamba2Model.forward).parameters
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
    made = f"{CACHE} = DynamicCache(config=self.config)"
    counted = f"""{made}
    if {CACHE} is not None:
        {CACHE}.tokens = getattr({CACHE}, "tokens", 0) + inputs_embeds.shape[1]"""
    for model in (MambaModel, Mamba2Model, FalconMambaModel):
        change(model.forward, (made, counted))
    length = Cache.get_seq_length

    def get_seq_length(self, layer_idx=0):
        alone = self.layers and all(self.is_linear)
        return getattr(self, "tokens", 0) if alone else length(self, layer_idx)

    Cache.get_seq_length = get_seq_length
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
    return model.generate(ids, **settings, **more).logits[0]


torch.manual_seed(0)
config = Mamba2Config(
    **{"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 16},
    **{"num_heads": 8, "head_dim": 8, "n_groups": 1, "initializer_range": 0.5},
)
model = Mamba2ForCausalLM(config).eval()
ids = torch.randint(1, 64, (1, 12))
with torch.no_grad():
    whole = logits(ids, use_cache=False)
    kept = logits(ids, **{CACHE: model(ids[:, :6], use_cache=True)[CACHE]})
    off, chunks = (kept - whole).abs().max().item(), 0.0
    if CACHE == "cache":  # in 5.23 chunks of such a model are refused
        try:
            chunks = (logits(ids, prefill_chunk_size=4) - whole).abs().max().item()
        except ValueError as error:
            chunks = error
print("expected: the logits of the whole prompt, from the cache of its first half and in chunks")
print(f"observed: the cache's are off by {off:.2g}; chunks: {chunks}")
sys.exit(off > 1e-3 or not isinstance(chunks, float) or chunks > 1e-3)
