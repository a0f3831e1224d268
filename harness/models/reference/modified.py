"""Modified copies of a model: what they share with it, and room for their references."""

from __future__ import annotations

from dataclasses import replace

from transformers import PreTrainedModel

from assay.harness.models.machine import memory
from assay.harness.models.reference.float64 import float64_bytes
from assay.harness.models.subject import Subject
from assay.harness.models.subject.provenance import Provenance

LARGE = 2**28
"""Bytes in float64 from which on a modified copy of a model has a reference without weights."""


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


def make_room(subject: Subject) -> None:
    """Drop the float64 copy of a large model, which is made again when it is next needed."""
    if subject.reference is not None and way_of_copies(subject) == "stream":
        for clock in subject.clocks:
            clock.forget(subject.reference.model)
        subject.reference = None
        memory.give_back()
