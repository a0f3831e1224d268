"""A Llama tokenizer forgets its setting ``legacy`` when it is saved.

Claims: H2
Types: llama
Met by: fine-tuning: models whose tokenizer_config.json has "legacy": true (Llama 1, Vicuna,
    Mistral 7B) are saved without it, and then give text after a special token other ids
Seen in: transformers 5.23.0
Expected: the saved and loaded tokenizer divides "a</s>b" into ['▁a', '</s>', '▁b']
Observed: ['▁a', '</s>', 'b'], while the saved tokenizer.json says prepend_scheme "always"
Cause: models/llama/tokenization_llama.py, 141: `__init__` does not pass `legacy` to its parent,
    which saves the arguments that it gets. The file's pre-tokenizer is not read. With
    `legacy=legacy` among those arguments the difference is gone.
Fix: none, because none has been written yet
Upstream: not found by searching for "LlamaTokenizer legacy not saved save_pretrained"
"""

import sys
import tempfile

from transformers import LlamaTokenizer

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
