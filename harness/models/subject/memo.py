"""Caches answers about a model for as long as the model is in use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

Answer = TypeVar("Answer")

ANSWERS = "_answers"
"""The attribute of a subject that stores the answers about it, by the function."""


def memo(question: Callable[[Subject], Answer]) -> Callable[[Subject], Answer]:
    """Compute ``question`` once for each subject; an exception is not an answer and not cached.

    Answers are stored on the subject: a cache in the function would keep every model in memory,
    and so would weak keys wherever an answer refers to its subject.
    """

    @functools.wraps(question)
    def remembered(subject: Subject) -> Answer:
        answers: dict[Callable[..., Any], Any] = vars(subject).setdefault(ANSWERS, {})
        if question not in answers:
            answers[question] = question(subject)
        return answers[question]

    return remembered
