"""Reads prompts, given as text or as token ids, and shows tokens as text."""

from __future__ import annotations

from collections.abc import Sequence

from assay.harness.models import capabilities
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput

BEFORE = 4
"""A token's text depends on so many before it at most."""

BYTES = 4
"""A character takes so many bytes at most, and so many tokens where each is a byte."""

BROKEN = "\N{REPLACEMENT CHARACTER}"
"""What tokenizers decode part of a character to."""


def read(
    subject: Subject, texts: Sequence[str], numbers: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The token ids of ``texts`` and of ``numbers``, special tokens not added.

    Raises `BadInput` for an invalid prompt.
    """
    prompts = [encoded(subject, text) for text in texts] + [list(ids) for ids in numbers]
    for ids in prompts:
        if beyond := [i for i in ids if i >= subject.vocabulary]:
            raise BadInput(
                f"token {beyond[0]}: {subject.name} has a vocabulary of {subject.vocabulary}, "
                f"so the last token is {subject.vocabulary - 1}"
            )
        if subject.context is not None and len(ids) > subject.context:
            raise BadInput(
                f"a prompt of {len(ids)} tokens: {subject.name} has a context of {subject.context}"
            )
    return prompts


def encoded(subject: Subject, text: str) -> list[int]:
    """The token ids of ``text``."""
    if "tokenizer" not in capabilities.probe(subject) or subject.tokenizer is None:
        raise BadInput(f"{subject.name} has no tokenizer; give token ids: --ids 5,17,3")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"prompt {text!r}: is not valid text") from error
    ids = subject.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    if not ids:
        raise BadInput(f"prompt {text!r}: is empty, there is no token in it")
    return list(ids)


def pieces(subject: Subject, ids: Sequence[int]) -> list[str]:
    """What each of the tokens adds to the text; ids with spaces where there is no tokenizer.

    Of tokens that make one character together, the last one has it.
    """
    if subject.tokenizer is None:
        return [f"{' ' if place else ''}{token}" for place, token in enumerate(ids)]
    found: list[str] = []
    first = 0
    for place, token in enumerate(ids):
        known = max(0, first - BEFORE)
        before = _decoded(subject, ids[known:first])
        through = _decoded(subject, ids[known : place + 1])
        piece = through.removeprefix(before) if through.startswith(before) else ""
        if piece.endswith(BROKEN) and place + 1 < min(len(ids), first + BYTES):
            found.append("")
            continue
        if piece.startswith(BROKEN) and place > first:
            found[first:] = [BROKEN] * (place - first)
            piece = piece.lstrip(BROKEN) or BROKEN
        found.append(piece or subject.tokens([token])[0])
        first = place + 1
    return found


def alone(subject: Subject, token: int) -> str:
    """The text of a token by itself."""
    return pieces(subject, [token])[0]


def _decoded(subject: Subject, ids: Sequence[int]) -> str:
    assert subject.tokenizer is not None
    text = subject.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
    return text if isinstance(text, str) else "".join(text)
