"""The float64 reference of a model, which draws the same random numbers as the model.

It is made at its first use (`harness.models.reference.float64_copies`).
"""

from __future__ import annotations

import torch

from assay.harness.models.machine.weights import dense_sizes, offloaded
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.results.errors import Missing


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
        from assay.harness.models.reference import float64_copies

        try:
            subject.reference = float64_copies.reference(subject, streams(subject), reference_of)
        except Missing as missing:
            _refusals(subject).append(str(missing))
            raise
    return subject.reference


@memo
def _refusals(subject: Subject) -> list[str]:
    """Why the model does not run in float64, once that was tried."""
    return []


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
