"""RecurrentGemma keeps its recurrent state in its modules and not in the cache.

Claims: C4
Types: recurrent_gemma
Met by: everyone who calls generate() with num_beams; whoever goes on from a returned cache or has
    two at a time
Seen in: transformers 5.23.0, 5.24.0
Expected: beams have the same scores with and without the cache; use_cache returns a cache
Observed: log-probabilities per token off by 0.051; the cache returned is None
Cause: `conv1d_state` and `recurrent_states` are attributes of the layers
    (models/recurrent_gemma/modeling_recurrent_gemma.py, 412 and 298), so `Cache.reorder_cache`
    does not reach them: with both reordered along with the cache the beams' difference is gone
    (0). The model returns no `past_key_values` (679), so a caller who passes on what came back
    starts anew.
Fix: models/recurrent_gemma/modeling_recurrent_gemma.py, 391: the block takes its states from the
    layer of the cache that is made for them and puts them back; 680 and 753: the cache is returned
Upstream: not found by searching for "recurrent_gemma past_key_values None use_cache
    recurrent_states module"; generation/utils.py, 3835, has a note that such models need a
    `_reorder_cache`, which this one no longer has
"""

import inspect
import sys
import textwrap

import torch
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.models.recurrent_gemma import modeling_recurrent_gemma


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
    block = modeling_recurrent_gemma.RecurrentGemmaRecurrentBlock
    model = modeling_recurrent_gemma.RecurrentGemmaModel
    modeling_recurrent_gemma.BaseModelOutput = BaseModelOutputWithPast
    modeling_recurrent_gemma.CausalLMOutput = CausalLMOutputWithPast
    make, forward = block.__init__, block.forward
    arguments = inspect.signature(model.forward).parameters
    keyword = "cache" if "cache" in arguments else "past_key_values"

    def init(self, config, layer_idx):
        make(self, config, layer_idx)
        self.layer_idx = layer_idx

    def keep(self, *args, **kwargs):
        cache = kwargs.pop(keyword, None)
        if cache is None:
            return forward(self, *args, **kwargs | {"use_cache": False})
        self.conv1d_state = cache.get_conv_state(self.layer_idx)
        self.rg_lru.recurrent_states = cache.get_recurrent_state(self.layer_idx)
        result = forward(self, *args, **kwargs | {"use_cache": True})
        cache.update_conv_state(self.conv1d_state, self.layer_idx)
        cache.update_recurrent_state(self.rg_lru.recurrent_states, self.layer_idx)
        self.conv1d_state = self.rg_lru.recurrent_states = None
        return result

    block.__init__, block.forward = init, keep
    last = "last_hidden_state=hidden_states,"
    change(model.forward, (last, f"{last} {keyword}={keyword},"))
    change(
        modeling_recurrent_gemma.RecurrentGemmaForCausalLM.forward,
        ("loss=loss,", f"loss=loss, {keyword}=outputs.{keyword},"),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = RecurrentGemmaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    lru_width=32,
    attention_window_size=8,
    w_init_variance_scale=1.0,
    logits_soft_cap=1.0,
)
model = RecurrentGemmaForCausalLM(config).eval()
ids = torch.randint(3, 64, (4, 6))
given = dict(num_beams=3, do_sample=False, max_new_tokens=10, eos_token_id=None)
given |= dict(output_scores=True, return_dict_in_generate=True)
with_cache, without = (
    model.generate(ids, use_cache=use, **given).sequences_scores for use in (True, False)
)
off = (with_cache - without).abs().max().item()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
cache = model(ids, use_cache=True).get(keyword)
print("expected: beams have the same scores with and without the cache; use_cache returns a cache")
print(f"observed: log-probabilities per token off by {off:.2g}; the cache returned is {cache}")
sys.exit(off > 1e-3 or cache is None)
