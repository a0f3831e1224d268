"""Faults in tokenizers and chat templates: what text becomes on its way to a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers

from assay.harness.faults.bed import Bed
from assay.harness.faults.catalogue import fault, part
from assay.harness.models.capabilities import Missing, pipelines
from assay.harness.models.subject import Subject
from assay.harness.operations import tokens

TEXT = "The tokenizer said: one and two?"


@part("words of its own")
def _words(subject: Subject) -> None:
    """A byte-level tokenizer divides text into words by an expression of its own."""
    inner = pipelines.backend(subject)
    kinds = [stage["type"] for stage in pipelines.stages(inner.pre_tokenizer)]
    if "ByteLevel" not in kinds or "Split" not in kinds:
        raise Missing("the tokenizer has no expression of its own for words")


@part("added tokens within words")
def _within_words(subject: Subject) -> None:
    """A token that was added to the vocabulary is found within a word."""
    inner = pipelines.backend(subject)
    tokens_added = inner.get_added_tokens_decoder().values()
    if not any(not token.single_word for token in tokens_added):
        raise Missing("no added token is found within a word")


def _other(bed: Bed, inner: Tokenizer) -> None:
    """Let the model's tokenizer work by another one of the tokenizers library."""
    if bed.subject.tokenizer is not None:
        bed.set(bed.subject.tokenizer, "_tokenizer", inner)


def _around(bed: Bed, change: Callable[..., Any], name: str) -> None:
    """Let ``change(usual, *args, **kwargs)`` do what a method of the tokenizer did."""
    if (tokenizer := bed.subject.tokenizer) is not None:
        bed.set(tokenizer, name, partial(change, getattr(tokenizer, name)))


def _method(name: str) -> Callable[[Bed, Callable[..., Any]], None]:
    """What `fault` takes as ``at`` for a change of this method of the tokenizer."""
    return partial(_around, name=name)


@fault(
    "merge-lost",
    "loading a tokenizer loses the merges of one of its tokens",
    caught_by=["H2"],
    needs=["tokenizer-file"],
)
def _merge_lost(bed: Bed) -> None:
    if bed.subject.tokenizer is not None:
        _other(bed, tokens.without(pipelines.backend(bed.subject), TEXT))


@fault(
    "words-as-in-gpt2",
    "a byte-level tokenizer divides text into words as GPT-2 does, whatever its file says",
    caught_by=["H2"],
    needs=["tokenizer-file", "words of its own"],
)
def _words_of_another(bed: Bed) -> None:
    if bed.subject.tokenizer is not None:
        inner = Tokenizer.from_str(pipelines.backend(bed.subject).to_str())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        _other(bed, inner)


@fault(
    "added-tokens-within-words-lost",
    "an added token within a word is read as text, against the tokenizer's file",
    caught_by=["H2"],
    needs=["tokenizer-file", "added tokens within words"],
)
def _only_as_words(bed: Bed) -> None:
    if bed.subject.tokenizer is not None:
        settings = json.loads(pipelines.backend(bed.subject).to_str())
        for token in settings["added_tokens"]:
            token["single_word"] = True
        _other(bed, Tokenizer.from_str(json.dumps(settings)))


@fault(
    "added-tokens-renumbered",
    "the last of the added tokens has the id of the one before it, which is decoded to nothing",
    caught_by=["H2"],
    needs=["stated-tokens", "fast-tokenizer"],
)
def _numbered(bed: Bed) -> None:
    if bed.subject.tokenizer is None:
        return
    *_, number = sorted(pipelines.stated_tokens(bed.subject))

    def as_before(usual: Any, *args: Any, **kwargs: Any) -> Any:
        ids = usual(*args, **kwargs)
        return ids - 1 if isinstance(ids, int) and ids == number else ids

    def to_nothing(usual: Any, token_ids: Any, *args: Any, **kwargs: Any) -> Any:
        return "" if [*token_ids] == [number] else usual(token_ids, *args, **kwargs)

    _around(bed, as_before, "convert_tokens_to_ids")
    _around(bed, to_nothing, "_decode")


@fault(
    "padding-on-the-right-only",
    "a batch is padded on the right, whatever side is asked for",
    caught_by=["H2"],
    needs=["fast-tokenizer", "padding-token"],
    at=_method("set_truncation_and_padding"),
)
def _right_only(usual: Any, *args: Any, **kwargs: Any) -> Any:
    return usual(*args, **{**kwargs, "padding_side": "right"})


@fault(
    "truncation-a-token-short",
    "a truncated text has one token less than it may have",
    caught_by=["H2"],
    needs=["fast-tokenizer", "padding-token"],
    at=_method("set_truncation_and_padding"),
)
def _short(usual: Any, *args: Any, **kwargs: Any) -> Any:
    if (most := kwargs.get("max_length")) and "DO_NOT" not in str(
        kwargs.get("truncation_strategy")
    ):
        kwargs["max_length"] = most - 1
    return usual(*args, **kwargs)


@fault(
    "truncation-stays-on",
    "once a text was truncated, later ones are too",
    caught_by=["H4"],
    needs=["fast-tokenizer"],
)
def _stays(bed: Bed) -> None:
    last: dict[str, Any] = {}

    def change(usual: Any, *args: Any, **kwargs: Any) -> Any:
        if "DO_NOT" not in str(kwargs.get("truncation_strategy", "DO_NOT")):
            last.update({name: kwargs[name] for name in ("truncation_strategy", "max_length")})
        return usual(*args, **{**kwargs, **last})

    _around(bed, change, "set_truncation_and_padding")


@fault(
    "offsets-late",
    "the offsets of a token are one letter late",
    caught_by=["H2"],
    needs=["fast-tokenizer"],
    at=_method("_convert_encoding"),
)
def _late(usual: Any, *args: Any, **kwargs: Any) -> Any:
    content, encodings = usual(*args, **kwargs)
    if spans := content.get("offset_mapping"):
        content["offset_mapping"] = [[(s + 1, e + 1) for s, e in row] for row in spans]
    return content, encodings


@fault(
    "decoded-text-cleaned-up",
    "spaces before punctuation are lost in decoding though they were to be kept",
    caught_by=["H2"],
    needs=["lossless-tokens"],
    at=_method("_decode"),
)
def _cleaned(usual: Any, *args: Any, **kwargs: Any) -> Any:
    text = usual(*args, **kwargs)
    return text.replace(" !", "!").replace(" ?", "?").replace(" .", ".").replace(" ,", ",")


@fault(
    "merge-lost-by-saving",
    "a saved tokenizer lacks the merges of one of its tokens",
    caught_by=["H2"],
    needs=["fast-tokenizer"],
    at=_method("save_pretrained"),
)
def _lost_by_saving(usual: Any, folder: Any, *args: Any, **kwargs: Any) -> Any:
    files = usual(folder, *args, **kwargs)
    path = Path(folder) / pipelines.FILE
    tokens.without(Tokenizer.from_file(str(path)), TEXT).save(str(path))
    return files


@fault(
    "padding-side-lost-by-saving",
    "a saved tokenizer does not say on which side it pads",
    caught_by=["H2"],
    needs=["fast-tokenizer"],
)
def _side_lost(bed: Bed) -> None:
    def change(usual: Any, folder: Any, *args: Any, **kwargs: Any) -> Any:
        files = usual(folder, *args, **kwargs)
        path = Path(folder) / pipelines.CONFIG
        side = "right" if getattr(bed.subject.tokenizer, "padding_side", "") == "left" else "left"
        content = json.loads(path.read_text()) | {"padding_side": side}
        path.write_text(json.dumps(content))
        return files

    _around(bed, change, "save_pretrained")


@fault(
    "chat-begins-twice",
    "a chat's ids begin with the token for the beginning twice",
    caught_by=["H3"],
    needs=["chat-template"],
    at=_method("apply_chat_template"),
)
def _twice(usual: Any, *args: Any, **kwargs: Any) -> Any:
    ids = usual(*args, **kwargs)
    return [*ids[:1], *ids] if isinstance(ids, list) else ids


@fault(
    "prompt-before-the-chat",
    "the prompt for an answer stands before the chat",
    caught_by=["H3"],
    needs=["chat-template"],
    at=_method("apply_chat_template"),
)
def _before(usual: Any, *args: Any, **kwargs: Any) -> Any:
    whole = usual(*args, **kwargs)
    if not (kwargs.get("add_generation_prompt") and isinstance(whole, str)):
        return whole
    chat = usual(*args, **{**kwargs, "add_generation_prompt": False})
    return whole[len(chat) :] + chat


@fault(
    "continued-message-cut-short",
    "a message to continue loses its last letter",
    caught_by=["H3"],
    needs=["continued-messages"],
    at=_method("apply_chat_template"),
)
def _cut_short(usual: Any, *args: Any, **kwargs: Any) -> Any:
    text = usual(*args, **kwargs)
    return text[:-1] if kwargs.get("continue_final_message") else text


@fault(
    "special-tokens-in-messages-read",
    "a chat is not sanitised though it was to be",
    caught_by=["H3"],
    needs=["sanitised-chats"],
    at=_method("apply_chat_template"),
)
def _read(usual: Any, *args: Any, **kwargs: Any) -> Any:
    return usual(*args, **{**kwargs, "sanitize_control_tokens": False})


@fault(
    "first-message-repeated",
    "a chat ends with its first message again",
    caught_by=["H5"],
    needs=["chat-template"],
    at=_method("apply_chat_template"),
)
def _repeated(usual: Any, conversation: Any, *args: Any, **kwargs: Any) -> Any:
    whole, first = (usual(each, *args, **kwargs) for each in (conversation, conversation[:1]))
    return whole + first if isinstance(whole, list | str) else whole
