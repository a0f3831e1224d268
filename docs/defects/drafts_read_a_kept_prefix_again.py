"""Assisted decoding on the cache of a prefix reads the whole prompt again on top of it.

Claims: G6
Types: *
Met by: whoever gives generate() the cache of a prefix with an assistant or prompt lookup
Seen in: transformers 5.23.0, 5.24.0
Expected: the first pass reads the 3 tokens that the cache does not hold, and the draft
Observed: it reads 11 tokens, and the text is another from token 1 on
Cause: generation/utils.py, 4071: `next_sequence_length` is None in the first iteration, so that
    nothing is cut off; other decoding subtracts `past_key_values.get_seq_length()` (`_prefill`,
    4309).
Fix: generation/utils.py, 4071: in the first iteration the cache's length is subtracted
Upstream: not found by searching for "assisted generation past_key_values prefix"
"""

import inspect
import sys
import textwrap

import torch
from transformers import GenerationMixin, LlamaConfig, LlamaForCausalLM


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
    old = "next_sequence_length = candidate_length + 1 if not is_first_iteration else None"
    held = "cache.get_seq_length() if is_first_iteration else 0"
    first = "candidate_input_ids.shape[1] - held if held else None"
    lines = [f"held = {held}", f"first = {first}", old.replace("else None", "else first")]
    change(GenerationMixin._assisted_decoding, (old, f"\n{' ' * 8}".join(lines)))


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    initializer_range=0.3,
    eos_token_id=None,
)
model = LlamaForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
ids = torch.randint(3, 64, (1, 11))
options = {"max_new_tokens": 8, "do_sample": False}
read = []
with torch.no_grad():
    plain = model.generate(ids, **options)[0, 11:].tolist()
    kept = model(ids[:, :8], use_cache=True)[keyword]
    note = lambda _, args, named: read.append(named["input_ids"].shape[1])  # noqa: E731
    model.register_forward_pre_hook(note, with_kwargs=True)
    drafted = model.generate(ids, **{keyword: kept}, prompt_lookup_num_tokens=2, **options)
drafted = drafted[0, 11:].tolist()
wrong = [step for step, pair in enumerate(zip(plain, drafted, strict=True), 1) if len({*pair}) > 1]
first = f"the text is another from token {wrong[0]} on" if wrong else "the text is the same"
print("expected: the first pass reads the 3 tokens that the cache does not hold, and the draft")
print(f"observed: it reads {read[0]} tokens, and {first}")
sys.exit(bool(wrong) or read[0] > 5)
