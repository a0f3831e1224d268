"""Once a CodeLlama tokenizer has filled in a gap, it gives other texts other ids.

Claims: H2, H4
Types: llama
Met by: a server that infills and completes with one tokenizer
Seen in: transformers 5.23.0
Expected: " a" is ['▁a'] before and after a call with <FILL_ME>
Observed: ['▁a'] before it and ['▁', '▁a'] after it
Cause: models/code_llama/tokenization_code_llama.py, 242: `set_infilling_processor(reset=True)`
    sets a normaliser that prepends "▁", which the tokenizer does not have when it is made: its
    pre-tokenizer (160) does that, and from then on both do.
Fix: none, because none has been written yet
Upstream: not found by searching for "CodeLlama infilling normalizer reset"; #47488 is about
    its decoding
"""

import sys

from transformers import CodeLlamaTokenizer

words = ["<unk>", "<s>", "</s>", "▁", "a", "▁a"]
vocabulary = {word: i for i, word in enumerate(words)}
tokenizer = CodeLlamaTokenizer(vocab=vocabulary, merges=[("▁", "a")])
before = tokenizer.tokenize(" a")
tokenizer("a<FILL_ME>a")
after = tokenizer.tokenize(" a")
print(f"expected: ' a' is {before} before and after a call with <FILL_ME>")
print(f"observed: {before} before it and {after} after it")
sys.exit(before != after)
