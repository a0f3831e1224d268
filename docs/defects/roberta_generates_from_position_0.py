"""RoBERTa and its relatives generate with positions that they never see otherwise.

Claims: C4, G4, G5, G6, G7
Types: roberta, camembert, data2vec-text, xlm-roberta, xlm-roberta-xl, roberta-prelayernorm, xmod
Met by: everyone who calls generate() or generate_batch() on such a decoder
Seen in: transformers 5.23.0, 5.24.0
Expected: generate() sees the logits that a forward pass gives (positions 2, 3, …), and a server
    gives its probability of the next token
Observed: logits off by 2.5; from those of position_ids 0, 1, … by 1e-06; a served log probability
    off by 2.1; in 5.24.0 the served request fails
Cause: generation/utils.py, 906: `_prepare_position_ids_for_generation` counts from 0 and passes
    position_ids on; the models' own positions begin at padding_idx + 1
    (models/roberta/modeling_roberta.py, 142), so rows 0 and 1 of the table, 1 being the padding's
    own, are read instead. A forward pass with positions 0, 1, … gives what generate() sees.
    A server counts from 0 as well (generation/continuous_batching/input_outputs.py, 395). In
    5.24.0 it gives nothing: it passes its cache as the model's, which asks it for its length
    (models/roberta/modeling_roberta.py, 610), and it has none.
Fix: generation/utils.py, 906: these types override `_prepare_position_ids_for_generation` and add
    padding_idx + 1; input_outputs.py, 395: a server begins where the configuration says. In
    5.24.0 a server's cache has a length besides, 0
Upstream: the same mistake of `DataCollatorWithFlattening` was issue #47496, fixed by PR #47525
    (merged); generate() not found by searching for "_prepare_position_ids_for_generation roberta
    padding_idx" (PR #35044, merged in 2024, made xlm-roberta-xl pass such positions), nor a server
    by "continuous batching roberta position_ids padding_idx"
"""

import inspect
import logging
import sys
import textwrap

import torch
import transformers
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    GenerationMixin,
    RobertaConfig,
    RobertaForCausalLM,
)
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.generation.continuous_batching.input_outputs import ContinuousBatchingIOs


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

    def prepare(self, inputs_tensor, model_kwargs):
        places = GenerationMixin._prepare_position_ids_for_generation
        return places(self, inputs_tensor, model_kwargs) + self.config.pad_token_id + 1

    names = "Roberta Camembert Data2VecText XLMRoberta XLMRobertaXL RobertaPreLayerNorm Xmod"
    for name in names.split():
        model = getattr(transformers, f"{name}ForCausalLM")
        model._prepare_position_ids_for_generation = prepare
        model.config_class.first_position = property(lambda config: config.pad_token_id + 1)
    first = 'past_length + getattr(self.config, "first_position", 0)'
    change(
        ContinuousBatchingIOs.prepare_batch_tensors,
        (
            "position_ids.extend(range(past_length, past_length + query_length))",
            f"position_ids.extend({first} + i for i in range(query_length))",
        ),
    )
    # A server passes its cache as the model's from 5.24 on; models ask it for a length.
    PagedAttentionCache.get_seq_length = lambda self: 0


if "--fixed" in sys.argv:
    fix()

logging.disable()  # a request that fails logs why
torch.manual_seed(0)
config = RobertaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    initializer_range=0.3,
    is_decoder=True,
)
model = RobertaForCausalLM(config).eval()
ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
given = dict(max_new_tokens=1, do_sample=False, output_logits=True, return_dict_in_generate=True)
with torch.no_grad():
    generated = model.generate(ids, attention_mask=torch.ones_like(ids), **given).logits[0][0]
    forward = model(ids).logits[0, -1]
    from_0 = model(ids, position_ids=torch.arange(6)[None]).logits[0, -1]
settings = ContinuousBatchingConfig(
    page_size=4, num_blocks=32, max_batch_tokens=32, return_logprobs=True
)
greedy = GenerationConfig(max_new_tokens=1, do_sample=False, eos_token_id=-1, pad_token_id=0)
(answer,) = model.generate_batch(
    ids.tolist(), generation_config=greedy, continuous_batching_config=settings, warmup=False
).values()
off, same = ((generated - x).abs().max().item() for x in (forward, from_0))
served, told = 0.0, f"a served request fails: {answer.error}"
if not answer.error:
    token, given = answer.generated_tokens[0], answer.logprobs[0]
    served = abs(given - forward.log_softmax(-1)[token].item())
    told = f"a served log probability off by {served:.2g}"
print("expected: generate() sees the logits that a forward pass gives (positions 2, 3, …)")
print(f"observed: logits off by {off:.2g}; from those of position_ids 0, 1, … by {same:.0e}")
print(told)
sys.exit(off > 1e-3 or served > 1e-4 or answer.error is not None)
