"""Once a CodeLlama tokenizer has filled in a gap, it gives other texts other ids.

Claims: H2, H4
Types: llama
Met by: a server that infills and completes with one tokenizer
Seen in: transformers 5.23.0, 5.24.0
Expected: " a" is ['▁a'] before and after a call with <FILL_ME>
Observed: ['▁a'] before it and ['▁', '▁a'] after it
Cause: models/code_llama/tokenization_code_llama.py, 242: `set_infilling_processor(reset=True)`
    sets a normaliser that prepends "▁", which the tokenizer does not have when it is made: its
    pre-tokenizer (160) does that, and from then on both do.
Fix: models/code_llama/tokenization_code_llama.py, 242: the reset takes the normaliser away, as it
    was not there when the tokenizer was made
Upstream: not found by searching for "CodeLlama infilling normalizer reset"; #47488 is about
    its decoding
"""

import inspect
import sys
import textwrap

from transformers import CodeLlamaTokenizer


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
    change(
        CodeLlamaTokenizer.set_infilling_processor,
        (
            "self._tokenizer.normalizer = normalizers.Sequence(\n"
            "            [\n"
            '                normalizers.Prepend(prepend="▁"),\n'
            '                normalizers.Replace(pattern=" ", content="▁"),\n'
            "            ]\n"
            "        )",
            "self._tokenizer.normalizer = None",
        ),
    )


if "--fixed" in sys.argv:
    fix()

words = ["<unk>", "<s>", "</s>", "▁", "a", "▁a"]
vocabulary = {word: i for i, word in enumerate(words)}
tokenizer = CodeLlamaTokenizer(vocab=vocabulary, merges=[("▁", "a")])
before = tokenizer.tokenize(" a")
tokenizer("a<FILL_ME>a")
after = tokenizer.tokenize(" a")
print(f"expected: ' a' is {before} before and after a call with <FILL_ME>")
print(f"observed: {before} before it and {after} after it")
sys.exit(before != after)
