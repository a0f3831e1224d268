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
Upstream: huggingface/transformers#47700 (closed; #47488 for CodeLlama)
"""

import json
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import AutoTokenizer

words = ["<unk>", "<s>", "</s>", "▁", "a", "▁a"]
vocabulary = {word: i for i, word in enumerate(words)}
file = Tokenizer(models.BPE(vocab=vocabulary, merges=[("▁", "a")], unk_token="<unk>"))
file.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
file.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
with tempfile.TemporaryDirectory() as folder:
    file.save(f"{folder}/tokenizer.json")
    settings = {"tokenizer_class": "LlamaTokenizer", "unk_token": "<unk>"}
    Path(folder, "tokenizer_config.json").write_text(json.dumps(settings))
    loaded = AutoTokenizer.from_pretrained(folder)
expected, observed = file.encode(" a").tokens, loaded.tokenize(" a")
print(f"expected: the ids of ' a' by tokenizer.json: {expected}")
print(f"observed: {observed}, and of 'a' {loaded.tokenize('a')}")
sys.exit(expected != observed)
