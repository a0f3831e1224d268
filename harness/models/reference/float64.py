"""The float64 reference of a model, which draws the same random numbers as the model.

It is made at its first use (`harness.models.reference.float64_copies`).
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace

import torch

from assay.harness.models.machine.weights import (
    dense_sizes,
    offloaded,
)
from assay.harness.models.reference.slices import Slice, part_of
from assay.harness.models.subject import Subject
from assay.harness.models.subject.drawing import Drawn
from assay.harness.models.subject.lengths import LONG
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.results.errors import REFUSALS, Missing


def reference_of(subject: Subject) -> Subject:
    """The same model in float64, parameter for parameter; itself where it already is.

    The first use builds it, and it stays with the subject.  Raises `Missing` where the model does
    not run in float64: there is no reference then.
    """
    if subject.dtype == torch.float64:
        return subject
    if subject.reference is None:
        for why in _refusals(subject):
            raise Missing(why)
        subject.reference = _built(subject)
    return subject.reference


@memo
def _refusals(subject: Subject) -> list[str]:
    """Why the model does not run in float64, once that was tried."""
    return []


def _built(subject: Subject) -> Subject:
    from assay.harness.models.reference import float64_copies

    with ExitStack() as pauses:
        for clock in subject.clocks:
            pauses.enter_context(clock.paused())
        device = torch.device("cpu") if subject.settings.float64 == "cpu" else subject.device
        model = float64_copies.float64_copy(subject, device, streams(subject))
    settings = SubjectSettings(attends=subject.settings.attends, home=subject.device)
    name = f"{subject.name} in float64"
    reference = Subject(name, model, settings=settings, provenance=subject.provenance)
    for clock in subject.clocks:
        clock.watch(model)
    try:
        float64_copies.require_runs(reference, subject)
    except Missing as missing:
        _refusals(subject).append(str(missing))
        raise
    if _draws(subject, reference):
        reference.settings = replace(settings, drawn_as=subject.dtype)
    return reference


def _draws(subject: Subject, reference: Subject) -> bool:
    """`draws`, asked of the slice of a large ``subject``: its blocks are of the same kinds."""
    part = part_of(subject)
    if isinstance(part, Slice):
        return reference_of(part.subject).settings.drawn_as is not None
    return draws(reference)


def draws(reference: Subject) -> bool:
    """Whether a long prompt's pass draws random numbers: some models hash or sample with them.

    Asked of the float64 copy: in 16 bits a long pass takes minutes on many processors.
    """
    n = min(reference.context or LONG, LONG)
    noted = Drawn(reference.dtype)
    with suppress(*REFUSALS), noted:
        reference(reference.content(torch.arange(n, device=reference.device)[None]), states=False)
    return noted.drew


WAYS = ("auto", "copy", "stream", "cpu")
"""The values of the setting `oracle`; ``cpu`` computes the reference on the CPU."""

LARGE = 2**29
"""Bytes of the weights in float64 above which the reference has none of its own.

A pass through more is bound by the memory that it reads: to upcast the model's own takes about as
long as to read a copy.
"""


def streams(subject: Subject) -> bool:
    """Whether the reference upcasts the model's weights where they are used."""
    way = subject.settings.float64
    if way == "copy" or offloaded(subject.model):
        return False
    return way == "stream" or float64_bytes(subject) > LARGE


def float64_bytes(subject: Subject) -> int:
    """Bytes of the model's weights in float64."""
    return sum(dense_sizes(subject.model).values()) * torch.float64.itemsize
