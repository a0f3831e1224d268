"""Injected faults: known defects, put into a sound model to check that the claims notice them.

``injected(fault, subject)`` yields the subject with the fault for the length of a block.  The
fault is in its copies too (the float64 reference copy, and saved and loaded ones), like a bug in
a model's code.

Other rooms import from this page and from `kills`, which injects every fault into models and
reports which claims notice.  The other modules are the catalogue, by kind of fault, and what it
is made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from transformers import PreTrainedModel

from assay.harness.checking import outside
from assay.harness.faults import (  # noqa: F401
    adapters,
    batches,
    embeddings,
    kernels,
    lost_inputs,
    numbers,
    pasts,
    places,
    quantised_caches,
    quantised_weights,
    rotations,
    shards,
    sight,
    states,
    tokenizers,
    uses,
)
from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import CacheRead, Pass
from assay.harness.faults.catalogue import FAULTS, Fault, fault, named
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput
from assay.harness.results.specs import SIGN

__all__ = [
    "FAULTS",
    "Bed",
    "CacheRead",
    "DoesNotApply",
    "Fault",
    "Injected",
    "Pass",
    "fault",
    "injected",
    "named",
]


class DoesNotApply(BadInput):
    """A model lacks the part that a fault changes; the message names it."""


class Injected:
    """A fault in a model, until `undo`: ``subject`` is the faulty one.

    The sound one, which has the same model, must not be used meanwhile.  Raises `DoesNotApply`.
    """

    def __init__(self, fault: Fault, healthy: Subject) -> None:
        if lacking := fault.lacks(healthy):
            why = f"{healthy.name}: the fault {fault.name!r} does not apply; {lacking}"
            raise DoesNotApply(why)
        self._beds: list[Bed] = []
        self.fault = fault
        try:
            own = Subject("", healthy.model, healthy.tokenizer, settings=healthy.settings)
            self._plant(own, loaded=False)
        except BaseException:
            self.undo()
            raise
        name = f"{healthy.name}{SIGN}{fault.name}"
        digest = hashlib.sha256(f"{healthy.digest}{SIGN}{fault.name}".encode()).hexdigest()
        self.subject = replace(healthy, name=name, digest=digest, injected=self)

    def sow(self, model: PreTrainedModel, loaded: bool = True) -> None:
        """Inject the fault into another model that the same code runs, ``loaded`` or made."""
        self._plant(Subject("", model), loaded)

    def _plant(self, subject: Subject, loaded: bool) -> None:
        bed = Bed(subject, loaded)
        self._beds.append(bed)
        self.fault.plant(bed)

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """What injects it into a model of another process: a function, as ``module:name``, with
        the arguments that follow the model.
        """
        return f"{__name__}:inject", self.fault.name, *filter(None, [self.fault.file])

    def undo(self) -> None:
        """Restore every model."""
        while self._beds:
            self._beds.pop().undo()


def inject(model: PreTrainedModel, name: str, file: str = "") -> None:
    """Inject a fault, one that ``file`` declares, into a model that this process runs."""
    if file and name not in FAULTS:
        outside.imported(file)
    named(name).plant(Bed(Subject("", model), loaded=True))


@contextmanager
def injected(fault: Fault, healthy: Subject) -> Iterator[Subject]:
    """Yield ``healthy`` with the fault, for the length of a block."""
    fault_in_model = Injected(fault, healthy)
    try:
        yield fault_in_model.subject
    finally:
        fault_in_model.undo()
