"""Remembers answers about a model, computed once, for as long as the model is in use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from assay.harness.models.core import Core

Asked = TypeVar("Asked", bound=Core)
Answer = TypeVar("Answer")

_KEPT = "_answers"
"""The attribute under which a subject carries the answers about it."""


def memo(question: Callable[[Asked], Answer]) -> Callable[[Asked], Answer]:
    """``question`` asked once of each subject; an exception is no answer and is not kept.

    Answers lie on the subject: a cache of the function's own would keep every model that was ever
    asked about in memory, and so would weak keys wherever an answer refers to its subject.
    """

    @functools.wraps(question)
    def remembered(subject: Asked) -> Answer:
        answers: dict[Callable[..., Any], Any] = vars(subject).setdefault(_KEPT, {})
        if question not in answers:
            answers[question] = question(subject)
        return answers[question]

    return remembered
