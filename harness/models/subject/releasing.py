"""Frees the memory of a model's modified copies once a claim is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from assay.harness.models.machine import memory
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import ANSWERS

SMALL = 2**27
"""Bytes of all modified copies of a model and their references, up to which claims share them."""


def release_copies(subject: Subject) -> None:
    """Forget answers that are modified copies of the model, unless all of them are small.

    The next claim that needs one makes it again.  How much memory is free does not matter: what a
    run takes should be the same on every machine.  Copies of a large model that no answer keeps
    are freed as well.
    """
    answers: dict[Callable[..., Any], Any] = vars(subject).get(ANSWERS, {})
    sizes = {question: sum(map(_bytes, _models(answer))) for question, answer in answers.items()}
    if sum(sizes.values()) > SMALL:
        for question in [question for question, size in sizes.items() if size]:
            del answers[question]
        memory.give_back()
    elif _bytes(subject) > SMALL:
        # Of a GPU's memory, where the model is, the size of the process says nothing.
        memory.give_back(SMALL if subject.device.type == "cpu" else 0)


def _models(answer: Any) -> Iterator[Subject]:
    """The copies that an answer holds, by themselves or by seed."""
    for each in answer.values() if isinstance(answer, dict) else [answer]:
        if isinstance(each, Subject):
            yield each


def _bytes(subject: Subject) -> int:
    """Bytes of the weights of a model, and of its float64 reference if it has one."""
    own = sum(each.numel() * each.itemsize for each in subject.model.parameters())
    return own if subject.reference is None else own + _bytes(subject.reference)
