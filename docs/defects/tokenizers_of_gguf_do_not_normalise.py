"""A tokenizer from a GGUF file of Qwen does not compose letters and accents, as Qwen's own does.

Claims: H2
Types: qwen2, qwen2_moe, qwen3, qwen3_moe, qwen3_5, qwen3_5_moe
Met by: whoever reads text in decomposed form (NFD: file names of macOS, some input methods) by a
    tokenizer from a GGUF file
Seen in: transformers 5.23.0, 5.24.0
Expected: the ids of Qwen2Tokenizer, which has the normaliser NFC
Observed: other ids for a letter with an accent in decomposed form
Cause: integrations/gguf/gguf_tokenizer_mapping.py, 162 in 5.24: every byte-level vocabulary
    becomes a GPT2Tokenizer, which has no normaliser; of what the file names (tokenizer.ggml.pre)
    only the expression that splits words is set
Fix: integrations/gguf/gguf_tokenizer_mapping.py, 278 in 5.24: set the normaliser NFC where
    tokenizer.ggml.pre is qwen2 or qwen35
Upstream: not found by searching for "GGUF tokenizer normalizer NFC qwen2"; #31630, closed, was
    about other differences of tokenizers from GGUF files
"""

import sys
import tempfile
import unicodedata

from gguf import GGUFWriter
from tokenizers import normalizers
from transformers import AutoTokenizer, Qwen2Tokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.integrations.gguf import gguf_tokenizer_mapping as mapping


def fix():
    """Apply the fix to transformers as it is installed."""
    split = mapping.set_split_regex

    def normalised(tokenizer, file):
        if file.get("pre_tokenizer_type") in ("qwen2", "qwen35"):
            tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
        return split(tokenizer, file)

    mapping.set_split_regex = normalised


if "--fixed" in sys.argv:
    fix()

spelling = bytes_to_unicode()
accent = "".join(spelling[byte] for byte in "é".encode())
tokens = [*spelling.values(), accent, "<|endoftext|>"]
merges = [" ".join(accent)]
with tempfile.TemporaryDirectory() as folder:
    writer = GGUFWriter(f"{folder}/a.gguf", "qwen2")
    for name, value in {"context_length": 64, "embedding_length": 32, "block_count": 1}.items():
        writer.add_uint32(f"qwen2.{name}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    read = AutoTokenizer.from_pretrained(folder, gguf_file="a.gguf")
own = Qwen2Tokenizer(
    vocab={token: number for number, token in enumerate(tokens)},
    merges=[tuple(each.split()) for each in merges],
)
expected, observed = (each(unicodedata.normalize("NFD", "é"))["input_ids"] for each in (own, read))
print(f"expected: the ids {expected}, of the composed letter")
print(f"observed: the ids {observed}")
sys.exit(observed != expected)
