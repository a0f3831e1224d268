"""Injected faults: known defects, put into a sound model to check that the claims notice them.

``planted(fault, subject)`` gives the subject with the fault for the length of a block.  The fault
is in the subject's copies too (its float64 twin, what was saved and loaded), as a bug in a
model's code would be.  The catalogue is in the other modules, by what goes wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from transformers import PreTrainedModel

from assay.harness.faults import (  # noqa: F401
    batches,
    inputs,
    kernels,
    numbers,
    pasts,
    places,
    quantised,
    sight,
    states,
    tables,
)
from assay.harness.faults.bed import Bed
from assay.harness.faults.catalogue import FAULTS, Fault, named
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput
from assay.harness.results.specs import SIGN

__all__ = [
    "FAULTS",
    "DoesNotApply",
    "Fault",
    "Planted",
    "named",
    "planted",
]


class DoesNotApply(BadInput):
    """A model lacks what a fault is about; the message says what."""


class Planted:
    """A fault in a model, until `undo`: ``subject`` is the damaged one.

    The healthy one, whose model it is, must not be used meanwhile.  Raises `DoesNotApply`.
    """

    def __init__(self, fault: Fault, healthy: Subject) -> None:
        if lacking := fault.lacks(healthy):
            why = f"{healthy.name}: the fault {fault.name!r} does not apply; {lacking}"
            raise DoesNotApply(why)
        self._beds: list[Bed] = []
        self.fault = fault
        try:
            self._plant(Subject("", healthy.model, attends=healthy.attends), loaded=False)
        except BaseException:
            self.undo()
            raise
        name = f"{healthy.name}{SIGN}{fault.name}"
        digest = hashlib.sha256(f"{healthy.digest}{SIGN}{fault.name}".encode()).hexdigest()
        self.subject = replace(healthy, name=name, digest=digest, planted=self)

    def sow(self, model: PreTrainedModel) -> None:
        """Plant the fault in another model that the same code runs."""
        self._plant(Subject("", model), loaded=True)

    def _plant(self, subject: Subject, loaded: bool) -> None:
        bed = Bed(subject, loaded)
        self._beds.append(bed)
        self.fault.plant(bed)

    def undo(self) -> None:
        """Put every model back as it was."""
        while self._beds:
            self._beds.pop().undo()


@contextmanager
def planted(fault: Fault, healthy: Subject) -> Iterator[Subject]:
    """``healthy`` with the fault, for the length of a block."""
    made = Planted(fault, healthy)
    try:
        yield made.subject
    finally:
        made.undo()
