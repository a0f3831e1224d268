"""Compares a model's outputs with a copy's: equal weights at equal addresses round alike.

A copy of a model lies elsewhere in memory, and some libraries round by the addresses of what they
multiply (`harness.models.allocation`).  So the model's own weights are put where the copy's lie,
address by address modulo 64 bytes, before the two are compared.  What remains is a difference
between the models, or noise of the machine: as much as the model differs from itself between
several such places.  Nothing of this needs float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from assay.harness.checking import sensitivity
from assay.harness.models import encoders
from assay.harness.models.allocation import lying_like
from assay.harness.models.rows import Rows
from assay.harness.models.subject import Subject
from assay.harness.models.tolerances import Distance, farthest

PLACES = 3
"""Places at which the model is run, of equal addresses modulo 64 bytes."""

MORE_PLACES = 8
"""Further ones, before a copy is said to differ."""

TIMES = 4.0
"""Times the noise that a copy may differ by: the largest of few is not the largest there is."""


@dataclass(frozen=True)
class Apart:
    """Two models' rows for the same ids: ``distance`` is the worst row's, ``allowed`` what
    the model differs by from itself, times `TIMES`; both relative.
    """

    mine: Rows
    theirs: Rows
    distance: Distance
    allowed: float

    def with_leak(self, size: float) -> tuple[float, float]:
        """The distance where each of the copy's rows is off by ``size`` of its length, rounded to
        its own dtype, and what is allowed.
        """
        moved = sensitivity.with_leak(self.theirs, self.theirs, size).tensors
        rounded = {name: moved[name].to(own.dtype) for name, own in self.theirs.tensors.items()}
        return _apart(Rows(rounded), self.mine).error, self.allowed


def apart(subject: Subject, copied: Subject, ids: Tensor) -> Apart:
    """How far the outputs of a copy for ``ids`` [batch, n] are from the subject's.

    The copy has the subject's parameters under the same names.
    """
    theirs = _rows(copied, ids)
    _rows(subject, ids)  # some change their weights in their first pass: not while they are moved
    places = _at_places(subject, copied, ids)
    mine = next(places)
    found, noise = _apart(theirs, mine), 0.0
    for place in range(1, PLACES + MORE_PLACES):
        if place >= PLACES and found.error <= TIMES * noise:
            break
        noise = max(noise, _apart(next(places), mine).error)
    return Apart(mine, theirs, found, TIMES * noise)


def _rows(subject: Subject, ids: Tensor) -> Rows:
    """All rows of a pass; an encoder's states are computed in it, where its weights lie now."""
    if not subject.is_encoder_decoder:
        return subject.rows(ids)
    return subject.rows(ids, encoder_outputs=encoders.encoded(subject, len(ids)))


def _at_places(subject: Subject, copied: Subject, ids: Tensor) -> Iterator[Rows]:
    """The subject's rows from one place after another at which it lies as the copy does."""
    for place in range(PLACES + MORE_PLACES):
        with lying_like(subject.model, copied.model, place):
            rows = _rows(subject, ids)
        yield rows


def _apart(one: Rows, other: Rows) -> Distance:
    """The worst row of any tensor; one that is not a number in one alone is infinitely wrong."""
    pairs = [*farthest(one, other).values(), *farthest(other, one).values()]
    return max(pairs, key=lambda each: each.error)
