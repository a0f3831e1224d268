"""Modified copies of a model: what they share with it, and when their memory is freed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from assay.harness.models.machine import memory
from assay.harness.models.machine.quantised_weights import dense_sizes
from assay.harness.models.subject.memo import ANSWERS
from assay.harness.models.subject.provenance import Provenance
from assay.harness.models.subject.subject import Subject

LARGE = 2**28
"""Bytes in float64 from which on a modified copy of a model has a reference without weights."""

SMALL = 2**27
"""Bytes of all modified copies of a model and their references, up to which claims share them."""


def of_same_code(
    subject: Subject, name: str, model: PreTrainedModel, provenance: Provenance | None = None
) -> Subject:
    """A subject of another model with the code of ``subject``, including injected faults.

    ``provenance`` is that of its weights; None where they are the subject's own.
    """
    if subject.injected is not None:
        subject.injected.sow(model)
    return Subject(
        *(name, model, subject.tokenizer),
        injected=subject.injected,
        settings=replace(subject.settings, float64=way_of_copies(subject)),
        provenance=provenance or subject.provenance,
    )


def way_of_copies(subject: Subject) -> str:
    """The `--oracle` of modified copies of ``subject``: there is one large float64 copy at most.

    Copies run few passes, and one reference of a large model takes as much memory as two models.
    """
    large = float64_bytes(subject) > LARGE
    way = subject.settings.float64
    return "stream" if way == "auto" and large else way


def float64_bytes(subject: Subject) -> int:
    """Bytes of the model's weights in float64."""
    return sum(dense_sizes(subject.model).values()) * torch.float64.itemsize


def make_room(subject: Subject) -> None:
    """Drop the float64 copy of a large model, which is made again when it is next needed."""
    if subject.reference is not None and way_of_copies(subject) == "stream":
        for clock in subject.clocks:
            clock.forget(subject.reference.model)
        subject.reference = None
        memory.give_back()


def release(subject: Subject) -> None:
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
    elif _bytes(subject) <= SMALL:
        return
    memory.give_back()


def _models(answer: Any) -> Iterator[Subject]:
    """The copies that an answer holds, by themselves or by seed."""
    for each in answer.values() if isinstance(answer, dict) else [answer]:
        if isinstance(each, Subject):
            yield each


def _bytes(subject: Subject) -> int:
    """Bytes of the weights of a model, and of its float64 reference if it has one."""
    own = sum(each.numel() * each.itemsize for each in subject.model.parameters())
    return own if subject.reference is None else own + _bytes(subject.reference)
