"""Prompt lookup drafts tokens past the length asked for, and past the model's last position.

Claims: C4
Types: gpt2
Met by: whoever calls generate() with prompt_lookup_num_tokens near the end of the context of a
    model with learned positions
Seen in: transformers 5.23.0, 5.24.0
Expected: with max_length below the context the tokens of greedy decoding
Observed: IndexError: index out of range in self
Cause: generation/candidate_generator.py, 1095: the end of the drafted tokens is bounded by
    `max_length` as an index into the prompt; the length of prompt and draft together is not.
Fix: generation/candidate_generator.py, 1095: a draft is no longer than `max_length` leaves room
    for beside the token that the model adds by itself
Upstream: not found by searching for "prompt_lookup_num_tokens index out of range"
"""

import inspect
import sys
import textwrap

import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator


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
    old = "end_idx = min(end_idx, input_length, self.max_length)"
    room = "self.max_length - 1 - input_length"
    change(
        PromptLookupCandidateGenerator.get_candidates,
        (old, f"end_idx = min(end_idx, input_length, start_idx + {room})"),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = GPT2Config(
    vocab_size=32, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=2
)
model = GPT2LMHeadModel(config).eval()
prompt = torch.tensor([[5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6, 7]])
asked = {"max_length": 15, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
plain = model.generate(prompt, **asked)
try:
    drafted = model.generate(prompt, prompt_lookup_num_tokens=4, **asked)
    said, right = drafted[0, 13:].tolist(), torch.equal(plain, drafted)
except IndexError as error:
    said, right = f"IndexError: {error}", False
print(f"expected: the tokens of greedy decoding, {plain[0, 13:].tolist()}")
print(f"observed: {said}")
sys.exit(not right)
