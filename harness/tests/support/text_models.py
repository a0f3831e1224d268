"""Small tokenizers of the usual kinds, trained on a fixed text, and models with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import transformers
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from assay.harness.operations.corpus import LINES
from assay.harness.tests.support import folders

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["<pad>", "</s>", "<unk>", "<s>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SPARE = 8
"""Rows of an embedding for tokens that a class adds."""
DIGITS = r"\p{N}{1,3}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@cache
def byte_level(words: str = "") -> str:
    """A byte-level tokenizer as JSON, which divides text by ``words`` in place of GPT-2's way."""
    tokenizer = Tokenizer(models.BPE())
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not words)
    split = [pre_tokenizers.Split(Regex(words), behavior="isolated")] if words else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, letters]) if words else letters
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator([*LINES, "2023 650841823 12345 67890 2023"] * 2, trainer)
    return tokenizer.to_str()


@cache
def metaspace(stage: str = "pre-tokenizer") -> str:
    """A BPE tokenizer with bytes for unknown letters, as Llama 2 has; its spaces are marked by a
    normaliser or by a pre-tokenizer.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    marked = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>", "<pad>", *BYTES]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    content = json.loads(tokenizer.to_str())
    added = content["added_tokens"]
    content["added_tokens"] = [each for each in added if each["content"] not in BYTES]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.pre_tokenizer = marked
    if stage == "normaliser":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        tokenizer = _without(tokenizer, "pre_tokenizer")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer.to_str()


@cache
def unigram() -> str:
    """A unigram tokenizer, as T5 has."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=420, special_tokens=PIECES, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer.to_str()


@cache
def word_piece(lowercase: bool = True) -> str:
    """A WordPiece tokenizer, as BERT has."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=BERT, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer.to_str()


def _without(tokenizer: Tokenizer, part: str) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | {part: None}))


def fast(content: str, **special: Any) -> Any:
    """A tokenizer of the library's general class."""
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(content), **special)


def by_class(name: str, content: str, **options: Any) -> Any:
    """A tokenizer of the library's class ``name``, which builds its stages itself from vocabulary
    and merges (transformers 5).
    """
    model = json.loads(content)["model"]
    vocabulary = model["vocab"]
    parts: dict[str, Any] = {"vocab": vocabulary}
    if isinstance(vocabulary, list):
        parts["vocab"] = [tuple(each) for each in vocabulary]
    if "merges" in model:
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        parts["merges"] = [tuple(pair) for pair in pairs]
    return getattr(transformers, name)(**parts, **options)


END = {"bos_token": "<|end|>", "eos_token": "<|end|>", "pad_token": "<|end|>"}
GENERAL = {
    "byte-level": ("gpt2", lambda: fast(byte_level(), **END)),
    "byte-level, words of its own": ("llama", lambda: fast(byte_level(DIGITS), **END)),
    "metaspace": (
        "llama",
        lambda: fast(metaspace(), bos_token="<s>", eos_token="</s>", pad_token="<pad>"),
    ),
    "metaspace by a normaliser": (
        "llama",
        lambda: fast(metaspace("normaliser"), bos_token="<s>", eos_token="</s>"),
    ),
    "unigram": ("t5", lambda: fast(unigram(), unk_token="<unk>", pad_token="<pad>")),
    "word pieces": (
        "bert",
        lambda: fast(word_piece(), unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]"),
    ),
}
"""Kinds of tokenizers by name, each with the kind of its model, in any version."""

OWN = {
    "GPT2Tokenizer": (
        "gpt2",
        lambda: by_class("GPT2Tokenizer", byte_level(), unk_token="<|end|>", **END),
    ),
    "Qwen2Tokenizer": ("llama", lambda: by_class("Qwen2Tokenizer", byte_level())),
    "GPTNeoXTokenizer": ("llama", lambda: by_class("GPTNeoXTokenizer", byte_level())),
    "LlamaTokenizer": ("llama", lambda: by_class("LlamaTokenizer", metaspace())),
    "LlamaTokenizer, legacy": (
        "llama",
        lambda: by_class("LlamaTokenizer", metaspace(), legacy=True),
    ),
    "CodeLlamaTokenizer": ("llama", lambda: by_class("CodeLlamaTokenizer", metaspace())),
    "GemmaTokenizer": ("llama", lambda: by_class("GemmaTokenizer", metaspace())),
    "T5Tokenizer": ("t5", lambda: by_class("T5Tokenizer", unigram())),
    "XLMRobertaTokenizer": ("bert", lambda: by_class("XLMRobertaTokenizer", unigram())),
    "CamembertTokenizer": ("bert", lambda: by_class("CamembertTokenizer", unigram())),
    "BertTokenizer": ("bert", lambda: by_class("BertTokenizer", word_piece())),
    "BertTokenizer, cased": (
        "bert",
        lambda: by_class("BertTokenizer", word_piece(False), do_lower_case=False),
    ),
}
"""Classes of the library by name, likewise; as transformers 5 builds them."""

EVERY: Mapping[str, tuple[str, Callable[[], Any]]] = GENERAL | OWN


def write(name: str, folder: Path, **changes: Any) -> Path:
    """Write a tiny model with the tokenizer ``name`` into a folder; ``changes`` go into its
    tokenizer_config.json.
    """
    kind, make = EVERY[name]
    return write_with(make(), kind, folder, **changes)


def write_with(tokenizer: Any, kind: str, folder: Path, **changes: Any) -> Path:
    """The same with a tokenizer of one's own."""
    folders.tiny(kind, vocab_size=len(tokenizer) + SPARE).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if changes:
        folders.edit_json(folder / "tokenizer_config.json", **changes)
    return folder
