"""Compares a model's outputs with a copy's: equal weights at equal addresses round alike.

A copy of a model has other addresses in memory, and some libraries round by the addresses of their
operands (`models.machine.allocation`).  So the model's own weights are aligned like the copy's,
modulo 64 bytes, before the two are compared.  The rest is a difference between the models, or
noise of the machine: the model's difference from itself between several such places.  None of this
needs float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from assay.harness.checking import sensitivity
from assay.harness.models.machine.allocation import lying_like
from assay.harness.models.reference.tolerances import Distance, farthest
from assay.harness.models.subject import Subject, encoders
from assay.harness.models.subject.rows import Rows

PLACES = 3
"""Places in memory at which the model runs, of equal addresses modulo 64 bytes."""

MORE_PLACES = 8
"""Further places, before a copy counts as different."""

TIMES = 4.0
"""Multiple of the noise by which a copy may differ: a few places may miss the largest noise."""


@dataclass(frozen=True)
class Apart:
    """Two models' rows for the same ids: ``distance`` is the worst row's, ``allowed`` is `TIMES`
    the model's difference from itself; both relative.
    """

    mine: Rows
    theirs: Rows
    distance: Distance
    allowed: float

    def with_leak(self, size: float) -> tuple[float, float]:
        """The distance where each of the copy's rows is off by ``size`` of its length, rounded to
        its own dtype, and the allowed one.
        """
        moved = sensitivity.leaking(self.theirs, self.theirs)(size).tensors
        rounded = {name: moved[name].to(own.dtype) for name, own in self.theirs.tensors.items()}
        return _apart(Rows(rounded), self.mine).error, self.allowed


def apart(subject: Subject, copied: Subject, ids: Tensor, noise_too: bool = True) -> Apart:
    """The distance of a copy's outputs for ``ids`` [batch, n] from the subject's.

    The copy has the subject's parameters under the same names.  Without ``noise_too`` nothing is
    allowed where the copy's outputs have the model's own bits.
    """
    theirs = _rows(copied, ids)
    _rows(subject, ids)  # before moving, as some models change their weights in their first pass
    places = _at_places(subject, copied, ids)
    mine = next(places)
    worst, noise = _apart(theirs, mine), 0.0
    if worst.error == 0.0 and not noise_too:
        return Apart(mine, theirs, worst, 0.0)
    for place in range(1, PLACES + MORE_PLACES):
        if place >= PLACES and worst.error <= TIMES * noise:
            break
        noise = max(noise, _apart(next(places), mine).error)
    return Apart(mine, theirs, worst, TIMES * noise)


def _rows(subject: Subject, ids: Tensor) -> Rows:
    """All rows of a pass, which also computes an encoder's states at its present addresses."""
    if not subject.is_encoder_decoder:
        return subject.rows(ids)
    return subject.rows(ids, encoded=encoders.encoded(subject, len(ids)))


def _at_places(subject: Subject, copied: Subject, ids: Tensor) -> Iterator[Rows]:
    """The subject's rows at one place after another with the copy's alignment."""
    parts: tuple[nn.Module, nn.Module] = subject.model, copied.model
    if _addresses(subject) == _addresses(copied):  # one memory, perhaps but for the embedding
        parts = subject.input_embeddings, copied.input_embeddings
    for place in range(PLACES + MORE_PLACES):
        with lying_like(parts[0], parts[1], place):
            rows = _rows(subject, ids)
        yield rows


def _addresses(subject: Subject) -> dict[str, int]:
    table = getattr(subject.input_embeddings, "weight", None)
    named = subject.model.named_parameters()
    return {name: weight.data_ptr() for name, weight in named if weight is not table}


def _apart(one: Rows, other: Rows) -> Distance:
    """The worst row of any tensor; a NaN on one side only is infinitely wrong."""
    pairs = [*farthest(one, other).values(), *farthest(other, one).values()]
    return max(pairs, key=lambda each: each.error)
