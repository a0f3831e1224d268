"""Finds where a model returns NaN or infinity for finite inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from assay.harness.models.machine import batches
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.rows import Rows
from assay.harness.results.errors import Missing

AT_ONCE = 256
"""The most prompts of one token each in one pass."""

PASSES = 256
"""Tokens of a vocabulary that are run alone, times the usual passes of a law within its reach: all
of GPT-2 small's in `standard`, 4 400 of them in `quick`.
"""

Place = tuple[str, int, int]
"""Tensor, row and position of a number that is not finite."""


def first(rows: Rows) -> Place | None:
    """The first row [batch, position] of a tensor with a number that is not finite, or None.

    Columns of the logits that are -inf in every row do not count: this is how the library removes
    tokens from the vocabulary.
    """
    for name, tensor in rows.tensors.items():
        bad = ~torch.isfinite(tensor)
        if name == "logits":
            bad &= ~(tensor == -torch.inf).flatten(0, 1).all(0)
        if name != "router gap" and bool(bad.any()):
            row, position = bad.any(-1).nonzero()[0].tolist()
            return name, row, position
    return None


def outputs(subject: Subject, ids: Tensor) -> Rows:
    """The subject's rows for ``ids`` [batch, n], and those of its encoder if it has one."""
    rows = subject.rows(ids)
    if subject.is_encoder_decoder:
        encoded = subject.encode(ids).last_hidden_state
        rows.tensors["encoder's output"] = encoded
    return rows


def in_words(subject: Subject, ids: Tensor, place: Place) -> str:
    """A place in words, with its token; ``ids`` [batch, n] are the subject's input."""
    name, row, position = place
    token = int(ids[row, position]) if position < ids.shape[1] else -1
    named = f"token {subject.tokens([token])[0]}({token}), " if token >= 0 else ""
    return f"{name}, {named}row {row}, position {position}"


def of_vocabulary(subject: Subject) -> str:
    """The first token that alone gives a number that is not finite, in words; empty if none.

    Runs `tokens_alone` of the tokens that are text, in batches; repeats each for an encoder that
    needs more than one.
    """
    answers, number = _answers(subject), tokens_alone(subject)
    if number not in answers:
        answers[number] = _of_tokens(subject, number)
    return answers[number]


def tokens_alone(subject: Subject) -> int:
    """About how many tokens `of_vocabulary` runs: all, or as many as a profile's reach allows."""
    most = subject.settings.reach * PASSES / max(1, subject.model.num_parameters())
    return int(min(most, len(_text(subject))))


@memo
def _text(subject: Subject) -> Tensor:
    """The tokens that are text: [tokens]."""
    return subject.content(torch.arange(subject.vocabulary, device=subject.device)).unique()


@memo
def _answers(subject: Subject) -> dict[int, str]:
    """What `of_vocabulary` answered, by the number of tokens: profiles differ in their reach."""
    return {}


def _of_tokens(subject: Subject, most: int) -> str:
    every = _text(subject)
    if len(every) > most:
        every = _telling(subject, every, most)
    every = every[:, None].expand(-1, subject.shortest)
    # A row of every layer and of the logits, and as much again for intermediate results.
    numbers = 2 * subject.shortest * (subject.vocabulary + subject.hidden * (subject.layers + 1))
    fit = batches.rows_that_fit(subject.device, numbers * subject.dtype.itemsize)
    messages: list[str] = []

    def look(rows: slice) -> None:
        ids = every[rows]
        if not messages and (place := first(outputs(subject, ids))) is not None:
            messages.append(in_words(subject, ids, place))

    batches.in_batches(look, len(every), min(AT_ONCE, fit))
    return messages[0] if messages else ""


def _telling(subject: Subject, ids: Tensor, most: int) -> Tensor:
    """``most`` of ``ids`` [n]: half of them with the longest and the shortest rows of the
    embedding, from which numbers overflow and norms divide by zero, the others spread evenly.
    """
    spread = ids[torch.linspace(0, len(ids) - 1, max(2, most // 2), device=ids.device).long()]
    try:
        lengths = torch.linalg.vector_norm(subject.embedding_table[ids], dim=-1).argsort()
    except Missing:
        return spread
    few = max(1, most // 4)
    return torch.cat([ids[lengths[:few]], ids[lengths[-few:]], spread]).unique()


def spoiled(rows: Rows) -> Iterator[Rows]:
    """Each tensor of ``rows`` alone, with NaN, then infinity, as its last element."""
    for name, value in itertools.product(rows.tensors, (torch.nan, torch.inf)):
        if name != "router gap":
            tensor = rows[name].clone()
            tensor[-1, -1, -1] = value
            yield Rows({name: tensor})
