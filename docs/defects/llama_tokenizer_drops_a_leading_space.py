"""A Llama tokenizer drops a space at the beginning of a text, which its tokenizer.json keeps.

Claims: H2
Types: llama, mistral
Met by: checkpoints whose tokenizer.json marks spaces by a normaliser, as those of Llama 2 and
    Mistral 7B do, and whose tokenizer_class is LlamaTokenizer
Seen in: transformers 5.23.0, 5.24.0
Expected: the ids of " a" by tokenizer.json: ['▁', '▁a']
Observed: ['▁a'], the same as of "a"
Cause: models/llama/tokenization_llama.py, 120: `__init__` builds a Metaspace pre-tokenizer in
    place of the file's normaliser (Prepend, Replace); Metaspace prepends nothing to a space.
    The file's own stages are not read, since the class has an `__init__` of its own.
Fix: tokenization_utils_tokenizers.py, 151: the file's normaliser and pre-tokenizer are read too;
    models/llama/tokenization_llama.py, 128: they are used where the file has a normaliser
Upstream: huggingface/transformers#47700 (closed; #47488 for CodeLlama)
"""

import inspect
import sys
import tempfile
import textwrap

from tokenizers import Tokenizer, models, normalizers
from transformers import LlamaTokenizer, PreTrainedTokenizerFast
from transformers.tokenization_utils_tokenizers import TokenizersBackend


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
    line = 'local_kwargs["post_processor"] = tok_from_file.post_processor'
    stages = "(tok_from_file.normalizer, tok_from_file.pre_tokenizer)"
    change(
        TokenizersBackend.convert_to_native_format.__func__,
        (line, f'{line}\n        local_kwargs["_json_stages"] = {stages}'),
    )
    line = '_json_padding = kwargs.pop("_json_padding", None)'
    change(TokenizersBackend.__init__, (line, f'{line}\n    kwargs.pop("_json_stages", None)'))
    line = "sequence = ["
    change(
        LlamaTokenizer.__init__,
        (
            f"\n    {line}",
            '\n    normalizer, pre_tokenizer = kwargs.pop("_json_stages", None) or (None, None)\n'
            "    if normalizer is not None and self.add_prefix_space:\n"
            "        self._tokenizer.normalizer = normalizer\n"
            "        self._tokenizer.pre_tokenizer = pre_tokenizer\n"
            f"    {line}",
        ),
    )


if "--fixed" in sys.argv:
    fix()

words = ["<unk>", "<s>", "</s>", "▁", "a", "▁a"]
vocabulary = {word: i for i, word in enumerate(words)}
inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[("▁", "a")], unk_token="<unk>"))
inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
file = PreTrainedTokenizerFast(tokenizer_object=inner)
with tempfile.TemporaryDirectory() as folder:
    file.save_pretrained(folder)
    loaded = LlamaTokenizer.from_pretrained(folder)
expected, observed = file.tokenize(" a"), loaded.tokenize(" a")
print(f"expected: the ids of ' a' by tokenizer.json: {expected}")
print(f"observed: {observed}, and of 'a' {loaded.tokenize('a')}")
sys.exit(expected != observed)
