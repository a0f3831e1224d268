"""A Llama tokenizer drops a space at the beginning of a text, which its tokenizer.json keeps.

Claims: H2
Types: llama, mistral
Met by: checkpoints whose tokenizer.json marks spaces by a normaliser, as those of Llama 2 and
    Mistral 7B do, and whose tokenizer_class is LlamaTokenizer
Seen in: transformers 5.23.0
Expected: the ids of " a" by tokenizer.json: ['▁', '▁a']
Observed: ['▁a'], the same as of "a"
Cause: models/llama/tokenization_llama.py, 120: `__init__` builds a Metaspace pre-tokenizer in
    place of the file's normaliser (Prepend, Replace); Metaspace prepends nothing to a space.
    The file's own stages are not read, since the class has an `__init__` of its own.
Fix: none, because none has been written yet
Upstream: huggingface/transformers#47700 (closed; #47488 for CodeLlama)
"""

import sys
import tempfile

from tokenizers import Tokenizer, models, normalizers
from transformers import LlamaTokenizer, PreTrainedTokenizerFast

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
