"""A Llama tokenizer forgets its setting ``legacy`` when it is saved.

Claims: H2
Types: llama
Met by: fine-tuning: models whose tokenizer_config.json has "legacy": true (Llama 1, Vicuna,
    Mistral 7B) are saved without it, and then give text after a special token other ids
Seen in: transformers 5.23.0, 5.24.0
Expected: the saved and loaded tokenizer divides "a</s>b" into ['▁a', '</s>', '▁b']
Observed: ['▁a', '</s>', 'b'], while the saved tokenizer.json says prepend_scheme "always"
Cause: models/llama/tokenization_llama.py, 141: `__init__` does not pass `legacy` to its parent,
    which saves the arguments that it gets. The file's pre-tokenizer is not read. With
    `legacy=legacy` among those arguments the difference is gone.
Fix: models/llama/tokenization_llama.py, 147: `legacy` is among the arguments that are passed on
Upstream: not found by searching for "LlamaTokenizer legacy not saved save_pretrained"
"""

import inspect
import sys
import tempfile
import textwrap

from transformers import LlamaTokenizer


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
    line = "use_default_system_prompt=use_default_system_prompt,"
    change(LlamaTokenizer.__init__, (line, f"{line} legacy=legacy,"))


if "--fixed" in sys.argv:
    fix()

words = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "▁b"]
merges = [("▁", "a"), ("▁", "b")]
vocabulary = {word: i for i, word in enumerate(words)}
tokenizer = LlamaTokenizer(vocab=vocabulary, merges=merges, legacy=True)
with tempfile.TemporaryDirectory() as folder:
    tokenizer.save_pretrained(folder)
    loaded = LlamaTokenizer.from_pretrained(folder)
expected, observed = (each.tokenize("a</s>b") for each in (tokenizer, loaded))
print(f"expected: the saved and loaded tokenizer divides 'a</s>b' into {expected}")
print(f"observed: {observed}")
sys.exit(expected != observed)
