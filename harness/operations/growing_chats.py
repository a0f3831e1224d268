"""What a chat template does to a chat's earlier messages when the chat grows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from jinja2 import TemplateError

from assay.harness.models.subject import Subject
from assay.harness.operations import tokens
from assay.harness.results.errors import Missing

Chat = list[dict[str, str]]

THINKING = re.compile(r"<\|?/?[\w:]*(?:think|reason)\w*\|?>|\[/?THINK\]|◁/?think▷", re.I)
"""Tags around a model's thinking: ``<think>``, ``</think>``, ``<seed:think>``, ``[THINK]``."""

AROUND, SHOWN = 12, 32
"""Letters before the first change that may begin a tag, and after it that are quoted."""


@dataclass(frozen=True)
class Growth:
    """The ids of a chat ``before`` and ``after`` it grew, those of its ``first`` messages, and how
    its text changed, if it did.
    """

    before: tokens.Ids
    after: tokens.Ids
    first: tokens.Ids
    change: str = ""

    @property
    def appends(self) -> bool:
        """Whether what was there is still there."""
        return self.after[: len(self.before)] == self.before

    @property
    def control_appends(self) -> bool:
        """The same of a template that repeats the first message at the end."""
        before, after = ([*ids, *self.first] for ids in (self.before, self.after))
        return after[: len(before)] == before


def growths(subject: Subject, chat: Chat, prompted: bool) -> Iterator[Growth]:
    """Each step of ``chat`` by one message; ``prompted``, the prompt for an answer follows those
    of the user, as where a model is asked.

    Raises `Missing` where the template takes no such chat, with its system message or without.
    """
    try:
        tokens.rendered(subject, chat[:2])
    except TemplateError:  # some templates take no system message
        chat = [each for each in chat if each["role"] != "system"]
    try:
        yield from _growths(subject, chat, prompted)
    except TemplateError as error:
        raise Missing(f"chat-template: it takes no chat of several turns ({error})") from error


def _growths(subject: Subject, chat: Chat, prompted: bool) -> Iterator[Growth]:
    begin = next(i for i, each in enumerate(chat) if each["role"] == "user") + 1
    sizes = range(begin, len(chat) + 1)
    options = [
        {"add_generation_prompt": prompted and chat[n - 1]["role"] == "user"} for n in sizes
    ]
    parts = [(chat[:n], each) for n, each in zip(sizes, options, strict=True)]
    every = [tokens.of_chat(subject, part, **each) for part, each in parts]
    for i in range(len(parts) - 1):
        grown = Growth(every[i], every[i + 1], every[0])
        if not grown.appends:
            texts = [tokens.rendered(subject, part, **each) for part, each in parts[i : i + 2]]
            grown = replace(grown, change=_change(subject, parts[i + 1][0], *texts))
        yield grown


def _change(subject: Subject, chat: Chat, before: str, after: str) -> str:
    """The first message whose text changes as the last of ``chat`` is added, how, and which tags
    of thinking are cut there.
    """
    size = len(chat) - 1
    at = tokens.first_unlike(before, after)
    if at == len(before):
        return "the text only grows, and its ids are divided otherwise where it went on"
    tag = before.rfind("<", max(0, at - AROUND), at)
    at = tag if tag >= 0 and ">" not in before[tag:at] else at
    number = next((i for i in range(1, size + 1) if _length(subject, chat[:i]) > at), None)
    old, new = (text[max(0, at - AROUND) : at + AROUND] for text in (before, after))
    lost = [tag for tag in dict.fromkeys(THINKING.findall(old)) if tag not in new]
    cut = f"thinking is cut ({', '.join(lost)}): " if lost else ""
    where = "the prompt for an answer"
    if number is not None:
        where = f"message {number} of {size} ({chat[number - 1]['role']})"
    return (
        f"{cut}in {where}, {before[at : at + SHOWN]!r} becomes {after[at : at + SHOWN]!r} "
        f"when message {size + 1} ({chat[-1]['role']}) is added"
    )


def _length(subject: Subject, chat: Chat) -> int:
    """The letters of a chat's beginning; 0 where the template takes none that is so short."""
    try:
        return len(tokens.rendered(subject, chat))
    except TemplateError:
        return 0
