"""Reads prompts, given as text or as token ids, and shows tokens as text."""

from __future__ import annotations

from collections.abc import Sequence

from assay.harness.models import capabilities
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput

BEFORE = 4
"""The most preceding tokens that a token's text depends on."""

BYTES = 4
"""The most bytes of a character, and tokens of one where each is a byte."""

BROKEN = "\N{REPLACEMENT CHARACTER}"
"""The text that tokenizers decode part of a character to."""


def read(
    subject: Subject, texts: Sequence[str], numbers: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The token ids of ``texts`` and of ``numbers``, special tokens not added.

    Raises `BadInput` for an invalid prompt.
    """
    prompts = [encode(subject, text) for text in texts] + [list(ids) for ids in numbers]
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


def encode(subject: Subject, text: str) -> list[int]:
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
    """The text that each token adds; ids with spaces where there is no tokenizer.

    Of tokens that make one character together, the last one has it.
    """
    if subject.tokenizer is None:
        return [f"{' ' if position else ''}{token}" for position, token in enumerate(ids)]
    texts: list[str] = []
    first = 0
    for position, token in enumerate(ids):
        start = max(0, first - BEFORE)
        before = _decoded(subject, ids[start:first])
        through = _decoded(subject, ids[start : position + 1])
        piece = through.removeprefix(before) if through.startswith(before) else ""
        if piece.endswith(BROKEN) and position + 1 < min(len(ids), first + BYTES):
            texts.append("")
            continue
        if piece.startswith(BROKEN) and position > first:
            texts[first:] = [BROKEN] * (position - first)
            piece = piece.lstrip(BROKEN) or BROKEN
        texts.append(piece or subject.tokens([token])[0])
        first = position + 1
    return texts


def alone(subject: Subject, token: int) -> str:
    """The text of a token by itself."""
    return pieces(subject, [token])[0]


def _decoded(subject: Subject, ids: Sequence[int]) -> str:
    assert subject.tokenizer is not None
    text = subject.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
    return text if isinstance(text, str) else "".join(text)
