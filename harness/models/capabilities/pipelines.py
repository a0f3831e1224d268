"""Looks into a tokenizer of the `tokenizers` library: its file, its stages, and what they keep."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.results.errors import Missing

FILE = "tokenizer.json"
CONFIG = "tokenizer_config.json"
ADDED = "added_tokens.json"
WORD = "▁"
"""Stands for a space in tokens of SentencePiece."""

OPTIONS = {
    "add_prefix_space": ("add_prefix_space", "prepend_scheme"),
    "do_lower_case": ("lowercase",),
    "strip_accents": ("strip_accents",),
    "tokenize_chinese_chars": ("handle_chinese_chars",),
}
"""Options in a tokenizer's configuration that replace settings of its file, by those settings."""


def byte_letters() -> dict[str, int]:
    """The letters by which byte-level tokens write bytes (GPT-2's `bytes_to_unicode`)."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    letters = {chr(byte): byte for byte in printed}
    return letters | {chr(256 + i): byte for i, byte in enumerate(others)}


LETTERS = byte_letters()


def backend(subject: Subject) -> Tokenizer:
    """The `tokenizers.Tokenizer` in the subject's tokenizer; raises `Missing` without one."""
    inner = getattr(subject.tokenizer, "backend_tokenizer", None)
    if not isinstance(inner, Tokenizer):
        kind = type(subject.tokenizer).__name__
        raise Missing(f"{kind} is no tokenizer of the tokenizers library, and has no {FILE}")
    return inner


def stages(component: Any) -> list[dict[str, Any]]:
    """The settings of a normaliser, pre-tokenizer or decoder, of each stage in its order."""
    if component is None:
        return []
    return _flat(json.loads(component.__getstate__()))


def _flat(settings: dict[str, Any]) -> list[dict[str, Any]]:
    if settings.get("type") != "Sequence":
        return [settings]
    inner = next(each for each in settings.values() if isinstance(each, list))
    return [stage for each in inner for stage in _flat(each)]


def own_file(subject: Subject) -> Path:
    """The `tokenizer.json` that the tokenizer was read from; raises `Missing` without one."""
    backend(subject)
    path = Path(str(getattr(subject.tokenizer, "name_or_path", ""))) / FILE
    if not path.is_file():
        raise Missing(f"the tokenizer was not read from a folder with a {FILE}")
    return path


def stated_tokens(subject: Subject) -> dict[int, str]:
    """The added tokens of a checkpoint by their ids, as its files say: `tokenizer_config.json`,
    else `added_tokens.json`, else `tokenizer.json`.

    Raises `Missing` where none of them lists any.
    """
    folder = Path(str(getattr(subject.tokenizer, "name_or_path", "")))
    listed = _json(folder / CONFIG).get("added_tokens_decoder") or {}
    stated = {int(number): _content(token) for number, token in listed.items()}
    if not stated:
        stated = {int(i): str(token) for token, i in _json(folder / ADDED).items()}
    if not stated:
        tokens = _json(folder / FILE).get("added_tokens") or []
        stated = {int(token["id"]): _content(token) for token in tokens}
    if not stated:
        raise Missing("no file of the tokenizer lists added tokens by their ids")
    return stated


def _json(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


@memo
def by_file(subject: Subject) -> Tokenizer:
    """The tokenizer by its own file alone, without padding and truncation."""
    return by_path(own_file(subject))


def by_path(path: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`, without padding and truncation."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def contradiction(subject: Subject) -> str:
    """An option of the tokenizer's configuration that replaces a setting of its file, in words;
    empty if there is none.
    """
    kwargs: Any = getattr(subject.tokenizer, "init_kwargs", {})
    if kwargs.get("fix_mistral_regex"):
        return "fix_mistral_regex replaces the pre-tokenizer of its file"
    tokenizer = by_file(subject)
    for stage in stages(tokenizer.normalizer) + stages(tokenizer.pre_tokenizer):
        for option, names in OPTIONS.items():
            for name in names:
                wanted = kwargs.get(option)
                if wanted is None or name not in stage:
                    continue
                has = stage[name] != "never" if name == "prepend_scheme" else stage[name]
                if has is not None and bool(has) != bool(wanted):
                    return f"its option {option}={wanted} replaces {name}={stage[name]}"
    return ""


def lossless(subject: Subject) -> None:
    """Raise `Missing` unless tokens keep all of a normalised text, by the tokenizer's stages."""
    inner = backend(subject)
    model, decoders = inner.model, stages(inner.decoder)
    if getattr(model, "end_of_word_suffix", None) or getattr(
        model, "continuing_subword_prefix", None
    ):
        raise Missing("its tokens mark the beginnings or the ends of words, not spaces")
    for stage in stages(inner.pre_tokenizer):
        if stage["type"] not in ("ByteLevel", "Metaspace", "Split", "Digits"):
            raise Missing(f"its pre-tokenizer {stage['type']} may drop spaces")
        if stage.get("behavior") == "Removed" or stage.get("add_prefix_space"):
            raise Missing(f"its pre-tokenizer {stage['type']} drops or adds text")
    if writes_bytes(inner):
        letters: list[str] = list(LETTERS)
        if [stage["type"] for stage in decoders] != ["ByteLevel"]:
            raise Missing("its decoder is not that of its byte-level tokens")
    elif getattr(model, "byte_fallback", False):
        letters = [f"<0x{byte:02X}>" for byte in range(256)]
        if odd := {s["type"] for s in decoders} - {"Replace", "ByteFallback", "Fuse", "Strip"}:
            raise Missing(f"its decoder {min(odd)} may drop text")
    else:
        raise Missing("its vocabulary does not have every byte: some text becomes unknown")
    if any(inner.token_to_id(letter) is None for letter in letters):
        raise Missing("its vocabulary does not have every byte: some text becomes unknown")


def unknown(tokenizer: Tokenizer) -> str | None:
    """The token for text that the vocabulary does not have."""
    model = tokenizer.model
    if (number := getattr(model, "unk_id", None)) is not None:
        return tokenizer.id_to_token(number)
    return getattr(model, "unk_token", None)


def writes_bytes(tokenizer: Tokenizer) -> bool:
    """Whether its tokens write bytes as letters (byte-level)."""
    return any(stage["type"] == "ByteLevel" for stage in stages(tokenizer.pre_tokenizer))


def normaliser(tokenizer: Tokenizer) -> Callable[[str], str]:
    """What a tokenizer makes of a text before it divides it; its signs for spaces left out."""
    normalizers = [
        stage
        for stage in stages(tokenizer.normalizer)
        if stage["type"] != "Prepend"
        and (stage.get("pattern"), stage.get("content")) != ({"String": " "}, WORD)
    ]
    if not normalizers:
        return lambda text: text
    empty = Tokenizer.from_str(
        json.dumps(
            {
                "version": "1.0",
                "added_tokens": [],
                "normalizer": {"type": "Sequence", "normalizers": normalizers},
                "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
            }
        )
    )
    normalise: Callable[[str], str] = empty.normalizer.normalize_str
    return normalise


def written(tokenizer: Tokenizer, token: str) -> bytes:
    """The bytes of text that a token stands for, without spaces at its ends."""
    if writes_bytes(tokenizer) and all(letter in LETTERS for letter in token):
        return bytes(LETTERS[letter] for letter in token).strip(b" ")
    if getattr(tokenizer.model, "byte_fallback", False) and _is_byte(token):
        return bytes([int(token[3:5], 16)]).strip(b" ")
    prefix = getattr(tokenizer.model, "continuing_subword_prefix", None) or ""
    suffix = getattr(tokenizer.model, "end_of_word_suffix", None) or ""
    token = token.removeprefix(prefix).removesuffix(suffix)
    return token.replace(WORD, " ").strip(" ").encode()


def _is_byte(token: str) -> bool:
    return len(token) == len("<0xFF>") and token.startswith("<0x") and token.endswith(">")


def takes(method: Any, argument: str) -> bool:
    """Whether a method of the library names an argument."""
    return argument in inspect.signature(method).parameters
