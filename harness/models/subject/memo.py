"""Caches answers about a model for as long as the model is in use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from assay.harness.models.machine import memory
from assay.harness.models.subject.core import Core

AnyCore = TypeVar("AnyCore", bound=Core)
Answer = TypeVar("Answer")

_KEPT = "_answers"
"""The attribute of a subject that stores the answers about it."""


def memo(question: Callable[[AnyCore], Answer]) -> Callable[[AnyCore], Answer]:
    """Compute ``question`` once for each subject; an exception is not an answer and not cached.

    Answers are stored on the subject: a cache in the function would keep every model in memory,
    and so would weak keys wherever an answer refers to its subject.
    """

    @functools.wraps(question)
    def remembered(subject: AnyCore) -> Answer:
        answers: dict[Callable[..., Any], Any] = vars(subject).setdefault(_KEPT, {})
        if question not in answers:
            answers[question] = question(subject)
        return answers[question]

    return remembered


SMALL = 2**27
"""Bytes of all modified copies of a model and their references, up to which claims share them."""


def release_copies(subject: Core) -> None:
    """Forget answers that are modified copies of the model, unless all of them are small.

    The next claim that needs one makes it again.  How much memory is free does not matter: what a
    run takes should be the same on every machine.  Copies of a large model that no answer keeps
    are freed as well.
    """
    answers: dict[Callable[..., Any], Any] = vars(subject).get(_KEPT, {})
    sizes = {question: sum(map(_bytes, _models(answer))) for question, answer in answers.items()}
    if sum(sizes.values()) > SMALL:
        for question in [question for question, size in sizes.items() if size]:
            del answers[question]
    elif _bytes(subject) <= SMALL:
        return
    memory.give_back()


def _models(answer: Any) -> Iterator[Core]:
    """The copies that an answer holds, by themselves or by seed."""
    for each in answer.values() if isinstance(answer, dict) else [answer]:
        if isinstance(each, Core):
            yield each


def _bytes(subject: Core) -> int:
    """Bytes of the weights of a model, and of its float64 reference if it has one."""
    own = sum(each.numel() * each.itemsize for each in subject.model.parameters())
    reference = subject.known_reference
    return own if reference is None else own + _bytes(reference)
