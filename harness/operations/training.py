"""Gradients of a loss with respect to a model's parameters, summed in several ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.checking.check import Check
from assay.harness.checking.comparing import BY_ROUNDING, Unsettled
from assay.harness.checking.reference import MACHINES
from assay.harness.models.reference import precision
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.rounding import Rounding
from assay.harness.models.reference.tolerances import ROUTER_GAP, TOLERANCES
from assay.harness.models.subject import Subject, selection
from assay.harness.models.subject.roles import Role
from assay.harness.operations import losses
from assay.harness.operations.padding import Ragged

AT_ONCE = 1 << 24
"""Numbers of all the gradients that are compared: of a large model, its smaller parameters'."""

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

    def apart(self, others: Gradients) -> tuple[float, str]:
        """The largest difference of a gradient, relative to its length, and its parameter."""
        worst, where = 0.0, ""
        for name, error in self.errors(others).items():
            if not error <= worst:
                worst, where = (error if math.isfinite(error) else math.inf), name
        return worst, where

    def errors(self, others: Gradients) -> dict[str, float]:
        """The difference of each parameter's gradient, relative to its length.

        A gradient that is missing is zero: an expert has one where it saw padding alone, and none
        where it saw nothing.
        """
        sizes = {name: float(tensor.norm()) for name, tensor in self.gradients.items()}
        mean = max(math.fsum(sizes.values()) / max(1, len(sizes)), torch.finfo(torch.float64).tiny)
        errors = {}
        for name in dict.fromkeys((*self.gradients, *others)):
            if name in self.left_out:
                continue
            size = sizes.get(name, 0.0)
            off = others.get(name, 0.0) - self.gradients.get(name, torch.tensor(0.0))
            errors[name] = float(off.norm()) / (
                mean if size < CANCELS * mean else max(size, self.small * mean)
            )
        return errors


@dataclass(frozen=True)
class Judged:
    """What a comparison with ``exact`` allowed: rounding moves the plain gradients, ``own``, by
    ``noise``.
    """

    exact: Exact
    own: Gradients
    noise: float
    allowed: float

    def rejects(self, check: Check, wrong: Gradients) -> None:
        """The control: the gradients are too far."""
        check.judge_control(self.exact.apart(wrong)[0], self.allowed)

    def sees(self, check: Check) -> None:
        """Look for the smallest leak into the plain gradients that is seen."""

        def leak(size: float) -> tuple[float, float]:
            return self.exact.apart(moved(self.own, size))[0], self.allowed

        check.sees(leak, noise=self.noise)


@dataclass(frozen=True)
class Plain:
    """The gradients of ``samples`` that the subject computes, ``own``, and the ``exact`` ones."""

    subject: Subject
    samples: Sequence[Sample]
    own: Gradients
    exact: Exact

    @classmethod
    def of(cls, subject: Subject, samples: Sequence[Sample]) -> Plain:
        """Compute both, of the parameters that `names` gives."""
        own = gradients(subject, samples, names(subject))
        return cls(subject, samples, own, exact(subject, samples, names(subject)))

    def judge(self, check: Check, observed: Gradients) -> Judged:
        """The law: ``observed`` are as near to the exact gradients as the subject's own are.

        A single run's error may be small by luck, where much cancels or an input of a ReLU is near
        its corner.  So before the law is refuted, the plain way runs as other machines may round
        it, and its largest error counts.  In 16 bits parameters that such rounding moves farther
        than any bound allows do not.

        Raises `Broken` where it is refuted, `Unsettled` where no parameter counts.
        """
        exact, runs = self.exact, [self.own]
        error, where = exact.apart(observed)
        most = check.tolerance.most if check.wide else torch.finfo(torch.float64).max
        if check.tolerance.allowed(exact.apart(self.own)[0]) < error <= most:
            runs += self._elsewhere()
            if not check.wide:
                exact = _settled(exact, runs[1:], check.tolerance.largest)
                error, where = exact.apart(observed)
        noise = max(exact.apart(each)[0] for each in runs)
        allowed = check.tolerance.allowed(noise)
        check.judge(error, allowed, where)
        return Judged(exact, self.own, noise, allowed)

    def _elsewhere(self) -> Iterator[Gradients]:
        """The subject's gradients under emulated roundings."""
        for seed in range(MACHINES):
            with Rounding(seed):
                yield gradients(self.subject, self.samples, names(self.subject))


def _settled(exact: Exact, runs: Sequence[Gradients], most: float) -> Exact:
    """Leave out the parameters that are off by more than ``most`` in one of the ``runs``."""
    far = {n for each in runs for n, error in exact.errors(each).items() if error > most}
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


def without_largest(samples: Sequence[Sample]) -> list[Sample]:
    """``samples`` without the one with the most labels."""
    largest = max(samples, key=lambda each: each.counted)
    return [each for each in samples if each is not largest]


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
                if (part := own[name].grad) is not None:
                    sums[name] = sums.get(name, 0.0) + number * part.detach().double()
                    own[name].grad = None
            subject.embedding_table.grad = None
    return sums


def exact(subject: Subject, samples: Sequence[Sample], names: Sequence[str]) -> Exact:
    """`gradients` of the float64 reference.

    Raises `Unsettled` where they are no numbers, or depend on near-ties between experts.
    """
    require_settled(subject, samples)
    sums = gradients(reference_of(subject), samples, names)
    for name, tensor in sums.items():
        if not bool(tensor.isfinite().all()):
            raise Unsettled(f"the float64 copy gives no gradient of {name}")
    rounding = ROUNDINGS * torch.finfo(precision.working(subject)).eps
    return Exact(sums, max(SMALL, rounding))


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


def moved(gradients: Gradients, share: float) -> Gradients:
    """The same with each gradient off by ``share`` of its length."""
    return {name: (1 + share) * tensor for name, tensor in gradients.items()}
