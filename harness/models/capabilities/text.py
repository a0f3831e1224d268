"""Capabilities of the tokenizer that came with a model: its kind, its file, its chat template."""

from __future__ import annotations

from typing import Any

from assay.harness.models.capabilities import pipelines
from assay.harness.models.capabilities.registry import capability, needs
from assay.harness.models.subject import Subject
from assay.harness.results.errors import Missing, brief

CHAT = [
    {"role": "user", "content": "One and two?"},
    {"role": "assistant", "content": "Three."},
    {"role": "user", "content": "And four?"},
]
"""A chat that every template takes: roles alternate, and the user begins and ends it."""


@capability("fast-tokenizer")
def _fast_tokenizer(subject: Subject) -> None:
    """The tokenizer is one of the tokenizers library, which gives a text the same ids twice."""
    needs(subject, "tokenizer")
    if getattr(pipelines.backend(subject).model, "dropout", None):
        raise Missing("the tokenizer leaves out merges at random (dropout)")


@capability("tokenizer-file")
def _tokenizer_file(subject: Subject) -> None:
    """The tokenizer was read from a tokenizer.json, which its configuration does not change."""
    needs(subject, "fast-tokenizer")
    pipelines.own_file(subject)
    if replaced := pipelines.contradiction(subject):
        raise Missing(replaced)


@capability("stated-tokens")
def _stated_tokens(subject: Subject) -> None:
    """The tokenizer's files say which added token has which id."""
    needs(subject, "tokenizer")
    pipelines.stated_tokens(subject)


@capability("padding-token")
def _padding_token(subject: Subject) -> None:
    needs(subject, "tokenizer")
    if getattr(subject.tokenizer, "pad_token_id", None) is None:
        raise Missing("the tokenizer has no token for padding")


@capability("lossless-tokens")
def _lossless_tokens(subject: Subject) -> None:
    """Tokens keep all of a text that is normalised: every byte has one, and none is dropped."""
    needs(subject, "fast-tokenizer")
    pipelines.lossless(subject)


@capability("chat-template")
def _chat_template(subject: Subject) -> None:
    needs(subject, "tokenizer")
    if not getattr(subject.tokenizer, "chat_template", None):
        raise Missing("the tokenizer has no chat template")
    _rendered(subject, CHAT)


@capability("continued-messages")
def _continued_messages(subject: Subject) -> None:
    """The template writes the last message as it is, so that a model can continue it."""
    needs(subject, "chat-template")
    _rendered(subject, CHAT[:2], continue_final_message=True)


@capability("sanitised-chats")
def _sanitised_chats(subject: Subject) -> None:
    """The library can encode special tokens in messages as text."""
    needs(subject, "chat-template")
    tokenizer: Any = subject.tokenizer
    if not pipelines.takes(type(tokenizer).apply_chat_template, "sanitize_control_tokens"):
        raise Missing("this version of transformers has no sanitize_control_tokens")
    try:
        tokenizer.apply_chat_template(CHAT, sanitize_control_tokens=True)
    except (NotImplementedError, ValueError) as error:
        raise Missing(f"sanitize_control_tokens is not supported: {brief(error)}") from error


def _rendered(subject: Subject, chat: list[dict[str, str]], **options: Any) -> None:
    tokenizer: Any = subject.tokenizer
    try:
        tokenizer.apply_chat_template(chat, tokenize=False, **options)
    except Exception as error:  # templates raise errors of any class
        raise Missing(f"the template does not take a plain chat: {brief(error)}") from error
