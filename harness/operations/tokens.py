"""What a model's tokenizer makes of text, in several ways, and how far two of them differ."""

from __future__ import annotations

import copy
import inspect
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer

from assay.harness.models.capabilities import Missing, pipelines
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo

Ids = list[int]

ADDING = ("add_bos_token", "add_eos_token")
"""Attributes that decide which tokens a tokenizer adds to a sequence."""

UNUSED = "\U0010fffd"
"""A letter that no vocabulary has."""


CALLS: dict[str, dict[str, Any]] = {
    "truncated": {"truncation": True, "max_length": 2, "add_special_tokens": False},
    "special tokens as text": {"split_special_tokens": True},
    "with special tokens": {"add_special_tokens": True},
}
"""Calls of a tokenizer with options of their own, which must not last."""


def ids(subject: Subject, text: str, **options: Any) -> Ids:
    """The ids of a text, without the special tokens that the tokenizer adds to it."""
    return of(subject.tokenizer, text, **{"add_special_tokens": False} | options)


def of(tokenizer: Any, text: str, **options: Any) -> Ids:
    """The ids that a tokenizer of transformers gives a text."""
    return list(tokenizer(text, verbose=False, **options)["input_ids"])


def in_library(tokenizer: Tokenizer, text: str, split: bool = False, special: bool = False) -> Ids:
    """The ids that a tokenizer of the tokenizers library gives a text.

    ``split`` reads special tokens in the text as text; ``special`` adds those of a sequence.
    """
    tokenizer.encode_special_tokens = split
    return list(tokenizer.encode(text, add_special_tokens=special).ids)


def unlike(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many entries of two sequences differ, with those that only one has."""
    differing = sum(a != b for a, b in zip(one, other, strict=False))
    return differing + abs(len(one) - len(other))


def first_unlike(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The first place at which two sequences differ, or at which the shorter one ends."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def where(text: str, one: Ids, other: Ids) -> str:
    """The first ids that differ, for a message."""
    at = first_unlike(one, other)
    return f"token {at} of {text!r}: {one[at : at + 4]} in place of {other[at : at + 4]}"


def splits(subject: Subject) -> bool:
    """Whether the tokenizer reads special tokens in a text as text unless it is told."""
    return bool(getattr(subject.tokenizer, "split_special_tokens", False))


def added_number(subject: Subject) -> int:
    """How many special tokens the tokenizer adds to a text."""
    tokenizer: Any = subject.tokenizer
    return int(tokenizer.num_special_tokens_to_add(pair=False))


def batch(subject: Subject, texts: Sequence[str], side: str, multiple: int, **options: Any) -> Any:
    """Several texts at once, padded on a side to a multiple of so many tokens."""
    tokenizer: Any = subject.tokenizer
    to = {"pad_to_multiple_of": multiple} if multiple > 1 else {}
    how = {"padding": True, "padding_side": side, "return_attention_mask": True}
    return tokenizer(list(texts), verbose=False, **how, **to, **options)


def cut(subject: Subject, numbers: Ids, most: int) -> Ids:
    """The first ids, or the last ones, by the side on which the tokenizer truncates."""
    tokenizer: Any = subject.tokenizer
    return numbers[-most:] if tokenizer.truncation_side == "left" else numbers[:most]


def adds_its_own(subject: Subject) -> bool:
    """Whether the tokenizer's configuration, or an attribute that was set after loading, decides
    which tokens are added to a sequence, in place of its file.
    """
    tokenizer: Any = subject.tokenizer
    options = getattr(tokenizer, "init_kwargs", {})
    names = (*ADDING, "src_lang", "language", "task")
    if any(options.get(name) is not None for name in names):
        return True
    made = inspect.signature(type(tokenizer).__init__).parameters
    usual = {name: made[name].default if name in made else False for name in ADDING}
    return any(bool(getattr(tokenizer, n, usual[n])) != bool(usual[n]) for n in ADDING)


def added(subject: Subject, stated: dict[int, str]) -> Ids:
    """The tokenizer's ids of ``stated`` tokens; -1 for one that it does not know."""
    tokenizer: Any = subject.tokenizer
    numbers = (tokenizer.convert_tokens_to_ids(token) for token in stated.values())
    return [-1 if number is None else int(number) for number in numbers]


def added_texts(subject: Subject) -> list[str]:
    """The texts of all tokens that were added to the vocabulary."""
    tokenizer: Any = subject.tokenizer
    return [str(token) for token in tokenizer.added_tokens_decoder.values()]


def shared_texts(subject: Subject, text: str, tokenizer: Tokenizer) -> bool:
    """Whether all added tokens in a text are those of ``tokenizer`` too."""
    contents = {str(token.content) for token in tokenizer.get_added_tokens_decoder().values()}
    return not any(token in text for token in added_texts(subject) if token not in contents)


def without(tokenizer: Tokenizer, text: str) -> Tokenizer:
    """A tokenizer that has lost the longest token that it makes of ``text``.

    Of byte pairs it is the merges that make it; of other models the entry of the vocabulary.
    Raises `Missing` where it makes none: no control of a law can then be rejected.
    """
    settings = json.loads(tokenizer.to_str())
    model = settings["model"]
    tokens = {*tokenizer.encode(text, add_special_tokens=False).tokens}
    tokens -= {token["content"] for token in settings["added_tokens"]} | {model.get("unk_token")}
    vocabulary, merges = model["vocab"], model.get("merges")
    if merges is not None:
        pairs = ["".join(pair.split(" ") if isinstance(pair, str) else pair) for pair in merges]
        lost = max(sorted(tokens & {*pairs}), key=len, default="")
        if not lost:
            raise Missing("the tokenizer merges nothing: no control could be rejected")
        model["merges"] = [
            each for each, whole in zip(merges, pairs, strict=True) if whole != lost
        ]
        model["ignore_merges"] = False
    else:
        lost = max(sorted(tokens), key=len, default="")
        if isinstance(vocabulary, dict):
            model["vocab"] = {UNUSED if k == lost else k: i for k, i in vocabulary.items()}
        else:
            model["vocab"] = [[UNUSED if k == lost else k, score] for k, score in vocabulary]
    return Tokenizer.from_str(json.dumps(settings))


def with_and_without(tokenizer: Tokenizer, text: str) -> tuple[Ids, Ids]:
    """The ids of a text, and those once the tokenizer has lost the longest token of it."""
    damaged = without(tokenizer, text)
    return in_library(tokenizer, text), in_library(damaged, text)


@contextmanager
def saved(subject: Subject) -> Iterator[Path]:
    """A folder with the tokenizer and the model's configuration, for the length of a block.

    The configuration is one of the files by which the library chooses a tokenizer's class.
    """
    tokenizer: Any = subject.tokenizer
    with tempfile.TemporaryDirectory() as folder:
        try:
            subject.config.save_pretrained(folder)
        except Exception as error:  # of a class of somebody's own
            raise Missing(f"the model's configuration cannot be saved: {error}") from error
        tokenizer.save_pretrained(folder)
        yield Path(folder)


@memo
def reloaded(subject: Subject) -> Any:
    """The tokenizer saved and loaded."""
    with saved(subject) as folder:
        own_class: Any = type(subject.tokenizer)
        ours = own_class.__module__.startswith("transformers.")
        return (AutoTokenizer if ours else own_class).from_pretrained(folder)


def with_eos_token(subject: Subject) -> Any:
    """A copy of the tokenizer whose ``add_eos_token`` is set.

    Raises `Missing` where it cannot be set, there is no such token, or it is added already.
    """
    tokenizer: Any = subject.tokenizer
    if not isinstance(getattr(type(tokenizer), "add_eos_token", None), property):
        raise Missing("eos-token: the tokenizer's class has no add_eos_token that can be set")
    if tokenizer.eos_token_id is None:
        raise Missing("eos-token: the tokenizer has no end-of-sequence token")
    if of(tokenizer, "x")[-1:] == [tokenizer.eos_token_id]:
        raise Missing("eos-token: the tokenizer adds its end-of-sequence token already")
    copied = copy.deepcopy(tokenizer)
    copied.add_eos_token = True
    return copied


@memo
def saved_file(subject: Subject) -> Tokenizer:
    """The tokenizer saved, and its file loaded by the tokenizers library."""
    with saved(subject) as folder:
        return pipelines.by_path(folder / pipelines.FILE)


def settings(tokenizer: Any, names: Iterable[str]) -> dict[str, Any]:
    """The settings ``names`` of a tokenizer, and its special and added tokens."""
    return {name: getattr(tokenizer, name, None) for name in names} | {
        "special tokens": {name: str(v) for name, v in tokenizer.special_tokens_map.items()},
        "added tokens": sorted((i, repr(t)) for i, t in tokenizer.added_tokens_decoder.items()),
    }


def kept_settings(subject: Subject) -> list[str]:
    """The settings that the library saves: a side that is set on a loaded tokenizer is not."""
    tokenizer: Any = subject.tokenizer
    options, usual = getattr(tokenizer, "init_kwargs", {}), type(tokenizer)
    sides = [
        name
        for name in ("padding_side", "truncation_side")
        if name in options or getattr(tokenizer, name, None) == getattr(usual, name, None)
    ]
    return [*sides, "chat_template", "model_max_length"]


def padded(alone: Sequence[Ids], side: str, padding: int, multiple: int) -> tuple[Any, Any]:
    """Rows of ids and of the attention mask: ``alone`` in a batch, padded on a side."""
    longest = -(-max(map(len, alone)) // multiple) * multiple
    rows, masks = [], []
    for each in alone:
        rest = longest - len(each)
        row, mask = [padding] * rest, [0] * rest
        rows.append(row + each if side == "left" else each + row)
        masks.append(mask + [1] * len(each) if side == "left" else [1] * len(each) + mask)
    return rows, masks


def normalised(subject: Subject, texts: Sequence[str]) -> list[str]:
    """Texts as the tokenizer normalises them, without those that it would normalise further and
    without empty ones.
    """
    normalise = pipelines.normaliser(pipelines.backend(subject))
    once = map(normalise, texts)
    return [text for text in once if text and normalise(text) == text]


def comes_back(subject: Subject, text: str) -> bool:
    """Whether tokens keep a normalised ``text``: it has no added token, no sign that stands for a
    space or a byte, and no space at its beginning, where a tokenizer may add one.
    """
    if any(token in text for token in added_texts(subject)):
        return False
    if pipelines.writes_bytes(pipelines.backend(subject)):
        return True
    return not text.startswith(" ") and pipelines.WORD not in text and "<0x" not in text


def decoded(subject: Subject, numbers: Ids) -> str:
    """The text of ids, as it is."""
    tokenizer: Any = subject.tokenizer
    return str(tokenizer.decode(numbers, clean_up_tokenization_spaces=False))


def offsets(subject: Subject, text: str) -> list[tuple[str, int, int]]:
    """Tokens of a text, and the span of letters of each: its first, and that after its last."""
    tokenizer: Any = subject.tokenizer
    encoding = tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
    )
    names = tokenizer.convert_ids_to_tokens(encoding["input_ids"])
    return [(n, *span) for n, span in zip(names, encoding["offset_mapping"], strict=True)]


def misplaced(subject: Subject, text: str, spans: Sequence[tuple[str, int, int]]) -> list[str]:
    """Tokens that point outside of a normalised ``text``, before the one before, or at a part
    that does not have their letters.
    """
    inner = pipelines.backend(subject)
    normalise = pipelines.normaliser(inner)
    own = getattr(subject.tokenizer, "unk_token", None)
    added = {*added_texts(subject), str(own), pipelines.unknown(inner)}
    wrong, last = [], 0
    for token, start, end in spans:
        span = f"{token!r} at {start}:{end}"
        if not 0 <= start <= end <= len(text) or start < last:
            wrong.append(span)
        elif token not in added:
            part = normalise(text[start:end]).replace(pipelines.WORD, " ")
            if pipelines.written(inner, token) not in part.encode():
                wrong.append(span)
        last = start
    return wrong


def shifted(spans: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Spans that are one letter later."""
    return [(token, start + 1, end + 1) for token, start, end in spans]


def rendered(subject: Subject, chat: Any, **options: Any) -> str:
    """The text of a chat."""
    tokenizer: Any = subject.tokenizer
    return str(tokenizer.apply_chat_template(chat, tokenize=False, **options))


def of_chat(subject: Subject, chat: Any, **options: Any) -> Ids:
    """The ids of a chat."""
    tokenizer: Any = subject.tokenizer
    return list(tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False, **options))


def first_run(numbers: Ids, number: int | None) -> int:
    """How often ``number`` stands at the beginning."""
    return next((i for i, each in enumerate(numbers) if each != number), len(numbers))


def beginnings(subject: Subject, text: str, numbers: Ids) -> dict[str, int]:
    """How many begin-of-sequence tokens a text starts with, a chat (its ids are ``numbers``), and
    the chat's ``text`` where the tokenizer reads it as any other text.
    """
    tokenizer: Any = subject.tokenizer
    ways = {"a text": of(tokenizer, "x"), "a chat": numbers, "a chat's text": of(tokenizer, text)}
    return {name: first_run(ids, tokenizer.bos_token_id) for name, ids in ways.items()}


def unprompted(subject: Subject, text: str, prompted: str) -> int:
    """How many letters of a chat are lost where the prompt for an answer is added.

    A token that ends the whole chat may be left out: some templates write it only where no answer
    is to follow.
    """
    end = getattr(subject.tokenizer, "eos_token", None) or ""
    texts = (text, text.rstrip("\n").removesuffix(str(end)))
    return min(len(each) - first_unlike(each, prompted) for each in texts)


def with_a_letter(chat: Any) -> Any:
    """A chat whose last message has one more letter."""
    return [*chat[:-1], {**chat[-1], "content": chat[-1]["content"] + "x"}]


def specials(subject: Subject, numbers: Ids) -> Ids:
    """The special tokens among ids, without the one for unknown text."""
    tokenizer: Any = subject.tokenizer
    special_ids = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
    return [number for number in numbers if number in special_ids]


def is_text_when_split(subject: Subject, token: str) -> bool:
    """Whether the text of a special token, read as text, has no special token: some vocabularies
    have it as a piece of text too.
    """
    return not specials(subject, ids(subject, token, split_special_tokens=True))
