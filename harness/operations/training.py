"""Gradients of a loss with respect to a model's parameters, summed in several ways."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.checking.check import Check
from assay.harness.checking.comparing import BY_ROUNDING, Unsettled
from assay.harness.checking.reference import MACHINES
from assay.harness.models.reference import precision
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.rounding import Rounding
from assay.harness.models.reference.tolerances import (
    FEW,
    ROUTER_GAP,
    TOLERANCES,
    Distance,
    Tolerance,
)
from assay.harness.models.subject import Subject, selection
from assay.harness.models.subject.roles import Role
from assay.harness.operations import losses
from assay.harness.operations.padding import Ragged
from assay.harness.results.verdicts import margin

AT_ONCE = 1 << 24
"""Numbers of all the gradients that are compared: of a large model, its smaller parameters'."""

PIECE = 1 << 18
"""Numbers of a gradient that are compared at a time."""

SMALL = 1e-3
"""Gradients shorter than this share of the mean one are measured against that share."""

ROUNDINGS = 8
"""The least such share, in units of the dtype's rounding.  A short gradient is a sum of long terms
that cancel, and each of them is rounded.
"""

CANCELS = 1e-6
"""A gradient shorter than this share of the mean one is measured against the mean one.

It is zero but for rounding, as that of a bias of keys: softmax does not change when a constant is
added to all scores.
"""


@dataclass(frozen=True)
class Sample:
    """Ids [batch, n], with what hides padding; ``labels`` [batch, n] stand at the rows that
    predict them.
    """

    ids: Tensor
    labels: Tensor
    arguments: dict[str, Any]

    @property
    def counted(self) -> int:
        """How many labels count."""
        return int(self.labels.ne(losses.IGNORED).sum())

    def halves(self) -> list[Sample]:
        """Its first half of rows and its others."""
        half = (len(self.ids) + 1) // 2
        return [self._rows(slice(None, half)), self._rows(slice(half, None))]

    def _rows(self, rows: slice) -> Sample:
        arguments = {name: value[rows] for name, value in self.arguments.items()}
        return Sample(self.ids[rows], self.labels[rows], arguments)


Gradients = dict[str, Tensor]
"""Gradients by the names of parameters, in float64."""

Loss = Callable[[Subject, Sample], tuple[Tensor, int]]
"""The cross-entropy of a sample, divided by a number, and that number."""


@dataclass(frozen=True)
class Exact:
    """Gradients that others are compared with: those of the float64 reference.

    Those shorter than the share ``small`` of the mean one are measured against that share.
    Parameters that are ``left_out`` do not count.
    """

    gradients: Gradients
    small: float = SMALL
    left_out: frozenset[str] = frozenset()

    @functools.cached_property
    def units(self) -> dict[str, float]:
        """What the difference of each parameter's gradient is relative to: its own length, or the
        mean one or a share of it where it is short.
        """
        sizes = {name: float(tensor.norm()) for name, tensor in self.gradients.items()}
        mean = max(math.fsum(sizes.values()) / max(1, len(sizes)), torch.finfo(torch.float64).tiny)
        return {
            name: mean if size < CANCELS * mean else max(size, self.small * mean)
            for name, size in (sizes | {"": 0.0}).items()
        }

    def apart(self, others: Gradients) -> Distance:
        """The largest difference of a gradient, and the median one."""
        return _farthest(self.errors(others))

    def errors(self, others: Gradients) -> dict[str, float]:
        """The difference of each parameter's gradient, relative to its length.

        A gradient that is missing is zero: an expert has one where it saw padding alone, and none
        where it saw nothing.
        """
        return {
            name: math.hypot(*(float(off.norm()) for off, _ in pieces))
            / self.units.get(name, self.units[""])
            for name, pieces in self._differences(others)
        }

    def leaking(self, own: Gradients) -> Callable[[float], Distance]:
        """By size: how far ``own`` are with each gradient longer by that share of its length."""
        terms = {}
        for name, pieces in self._differences(own):
            products = [(float(a @ a), float(a @ b), float(b @ b)) for a, b in pieces]
            terms[name] = [math.fsum(each) for each in zip(*products, strict=True)]

        def leaking(size: float) -> Distance:
            return _farthest(
                {
                    name: max(apart + 2 * size * both + size**2 * length, 0.0) ** 0.5
                    / self.units.get(name, self.units[""])
                    for name, (apart, both, length) in terms.items()
                }
            )

        return leaking

    def _differences(
        self, others: Gradients
    ) -> Iterator[tuple[str, Iterator[tuple[Tensor, Tensor]]]]:
        """By name: ``others`` less the exact ones, and ``others``, flat and in pieces: a whole one
        would take fresh memory each time, which takes longer than the difference.
        """
        for name in dict.fromkeys((*self.gradients, *others)):
            if name not in self.left_out:
                known = self.gradients, others
                like = next(each[name] for each in known if name in each)
                exact, other = (e[name] if name in e else torch.zeros_like(like) for e in known)
                pairs = zip(_pieces(exact), _pieces(other), strict=True)
                yield name, ((b - a, b) for a, b in pairs)


def _pieces(tensor: Tensor) -> Sequence[Tensor]:
    return tensor.flatten().split(PIECE)


def _farthest(errors: dict[str, float]) -> Distance:
    """The parameter with the largest of the ``errors``, and their median where they are many."""
    errors = {name: e if math.isfinite(e) else math.inf for name, e in errors.items()}
    name = max(errors, key=errors.__getitem__, default="")
    median = statistics.median(errors.values()) if len(errors) >= FEW else math.nan
    return Distance(errors.get(name, 0.0), name, typical=median)


@dataclass(frozen=True)
class Judged:
    """What a comparison with ``exact`` allows: rounding moves the plain gradients, ``own``, by
    ``noise``.
    """

    exact: Exact
    own: Gradients
    noise: Distance
    tolerance: Tolerance
    wide: bool

    def bounded(self, apart: Distance) -> tuple[float, float, str]:
        """The error with the least margin, its bound, and its parameter.

        In 16 bits the median parameter has a bound of its own: rounding moves one gradient so far
        that a small error in all of them would hide under its bound.
        """
        found = [(apart.error, self.tolerance.allowed(self.noise.error), apart.tensor)]
        if not self.wide and not math.isnan(apart.typical):
            typically = self.tolerance.allowed_typically(self.noise.typical)
            found.append((apart.typical, typically, f"the median one; farthest {apart.tensor}"))
        return min(found, key=lambda each: margin(each[0], each[1]))

    def rejects(self, check: Check, wrong: Gradients) -> None:
        """The control: the gradients are too far."""
        check.judge_control(*self.bounded(self.exact.apart(wrong))[:2])

    def sees(self, check: Check) -> None:
        """Look for the smallest leak into the plain gradients that is seen."""
        leaking = self.exact.leaking(self.own)
        check.sees(lambda size: self.bounded(leaking(size))[:2], noise=self.noise.error)


@dataclass(frozen=True)
class Plain:
    """The gradients of ``samples`` that the subject computes, ``own``, and the ``exact`` ones.

    Those ``without_largest`` are the exact ones of all samples but that with the most labels.
    """

    subject: Subject
    samples: Sequence[Sample]
    own: Gradients
    exact: Exact
    without_largest: Gradients = field(default_factory=dict)

    @classmethod
    def of(cls, subject: Subject, samples: Sequence[Sample]) -> Plain:
        """Compute both, of the parameters that `names` gives."""
        own = gradients(subject, samples, names(subject))
        return cls(subject, samples, own, *exact(subject, samples, names(subject)))

    def judge(self, check: Check, observed: Gradients) -> Judged:
        """The law: ``observed`` are as near to the exact gradients as the subject's own are.

        A single run's error may be small by luck, where much cancels or an input of a ReLU is near
        its corner.  So before the law is refuted, the plain way runs as other machines may round
        it, and its largest error counts.  In 16 bits parameters that such rounding moves farther
        than any bound allows do not.

        Raises `Broken` where it is refuted, `Unsettled` where no parameter counts.
        """
        exact, tolerance, wide = self.exact, check.tolerance, check.wide
        judged = Judged(exact, self.own, exact.apart(self.own), tolerance, wide)
        error, allowed, where = judged.bounded(exact.apart(observed))
        most = tolerance.most if wide else torch.finfo(torch.float64).max
        if allowed < error <= most:
            runs = [exact.errors(each) for each in (self.own, *self._elsewhere())]
            if not wide:
                exact = _settled(exact, runs[1:], tolerance.largest)
            counted = [{n: e for n, e in run.items() if n not in exact.left_out} for run in runs]
            noise = functools.reduce(Distance.largest, map(_farthest, counted))
            judged = Judged(exact, self.own, noise, tolerance, wide)
            error, allowed, where = judged.bounded(exact.apart(observed))
        check.judge(error, allowed, where)
        return judged

    def _elsewhere(self) -> Iterator[Gradients]:
        """The subject's gradients under emulated roundings."""
        for seed in range(MACHINES):
            with Rounding(seed):
                yield gradients(self.subject, self.samples, names(self.subject))


def _settled(exact: Exact, runs: Sequence[dict[str, float]], most: float) -> Exact:
    """Leave out the parameters whose error in one of the ``runs`` is more than ``most``."""
    far = {name for errors in runs for name, error in errors.items() if error > most}
    if not set(exact.gradients) - far:
        raise Unsettled(BY_ROUNDING)
    return replace(exact, left_out=frozenset(far))


def names(subject: Subject) -> list[str]:
    """The parameters whose gradients are compared: all, or the smaller ones of a large model."""
    named = {n: p for n, p in subject.model.named_parameters() if p.is_floating_point()}
    chosen, room = [], AT_ONCE
    for name, parameter in sorted(named.items(), key=lambda item: item[1].numel()):
        if parameter.numel() > room:
            break
        chosen.append(name)
        room -= parameter.numel()
    return chosen


def sample(subject: Subject, ids: Tensor) -> Sample:
    """A sample of ``ids`` [batch, n], all of which count that a row predicts."""
    return Sample(ids, _labels(subject, ids), {})


def padded(subject: Subject, batch: Ragged) -> Sample:
    """A padded batch, of which the rows of padding do not count."""
    labels = _labels(subject, batch.ids).masked_fill(batch.mask == 0, losses.IGNORED)
    if not batch.left and losses.is_shifted(subject):
        ends = torch.tensor(batch.lengths, device=labels.device)[:, None] - 1
        labels = labels.scatter(1, ends, losses.IGNORED)  # it would predict the padding
    return Sample(batch.ids, labels, batch.arguments)


def _labels(subject: Subject, ids: Tensor) -> Tensor:
    """The id that each row of ``ids`` [batch, n] predicts."""
    ids = losses.scored(subject, ids)
    if not losses.is_shifted(subject):
        return ids
    labels = ids.roll(-1, 1)
    labels[:, -1] = losses.IGNORED
    return labels


def cross_entropy(subject: Subject, sample: Sample) -> tuple[Tensor, int]:
    """The cross-entropy of a sample, summed as the library computes it: in float32 at least."""
    logits = subject.rows(sample.ids, states=False, **sample.arguments)["logits"]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total = nn.functional.cross_entropy(
        logits.flatten(0, 1), sample.labels.flatten(), ignore_index=losses.IGNORED, reduction="sum"
    )
    return total, 1


def own_loss(over: int | None = None) -> Loss:
    """The model's own loss, a mean over a sample's labels, and their number.

    With ``over`` the model divides by that number, of the labels of several batches.
    """

    def loss(subject: Subject, sample: Sample) -> tuple[Tensor, int]:
        options: dict[str, Any] = {} if over is None else {Role.LABEL_COUNT: over}
        options |= {Role.LABELS: losses.as_argument(subject, sample.labels), **sample.arguments}
        output: Any = subject(sample.ids, states=False, **options)
        return output.loss, over or sample.counted

    return loss


def require_settled(subject: Subject, samples: Sequence[Sample]) -> None:
    """Raise `Unsettled` where near-ties route a row of ``samples`` to its experts."""
    gap = ROUTER_GAP * TOLERANCES[precision.working(subject)].floor
    for sample in samples if selection.chooses(subject) else ():
        mask = reference_of(subject).rows(sample.ids, **sample.arguments).row_mask(gap)
        if mask is not None and not bool(mask.all()):
            raise Unsettled("a row is routed to experts by near-ties")


def gradients(
    subject: Subject,
    samples: Sequence[Sample],
    names: Sequence[str],
    embedding: bool = False,
    loss: Loss = cross_entropy,
) -> Gradients:
    """The gradients of the summed cross-entropy of ``samples``, a backward pass for each.

    Those that the loss does not depend on are left out.  With ``embedding`` the embedding matrix
    is trained as well: torch's reentrant checkpoints pass no gradient to inputs without one.
    ``loss`` computes the cross-entropy of a sample, divided by a number.
    """
    own = dict(subject.model.named_parameters())
    sums: Gradients = {}
    also = [subject.embedding_table] if embedding or not names else []
    with trainable([*also, *(own[name] for name in names)]):
        for sample in samples:
            value, number = loss(subject, sample)
            value.backward()
            for name in names:
                if (part := own[name].grad) is None:
                    continue
                own[name].grad = None
                if name in sums:
                    sums[name].add_(part, alpha=number)
                else:
                    sums[name] = part.double().mul_(number)
            subject.embedding_table.grad = None
    return sums


def exact(
    subject: Subject, samples: Sequence[Sample], names: Sequence[str]
) -> tuple[Exact, Gradients]:
    """`gradients` of the float64 reference, and those without the sample with the most labels.

    Raises `Unsettled` where they are no numbers, or depend on near-ties between experts.
    """
    require_settled(subject, samples)
    largest = max(samples, key=lambda each: each.counted)
    others = [each for each in samples if each is not largest]
    fewer = gradients(reference_of(subject), others, names)
    sums = gradients(reference_of(subject), [largest], names)
    for name in {**fewer, **sums}:
        if name in fewer:
            sums[name] = sums[name].add_(fewer[name]) if name in sums else fewer[name]
        if sums[name].numel() and not all(map(math.isfinite, sums[name].aminmax())):
            raise Unsettled(f"the float64 copy gives no gradient of {name}")
    rounding = ROUNDINGS * torch.finfo(precision.working(subject)).eps
    return Exact(sums, max(SMALL, rounding)), fewer


@contextmanager
def trainable(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Let gradients reach the parameters within a block."""
    before = [each.requires_grad for each in parameters]
    for each in parameters:
        each.requires_grad_(True)
    try:
        yield
    finally:
        for each, was in zip(parameters, before, strict=True):
            each.requires_grad_(was)
