"""A model's own loss of labels, and the cross-entropy that it must equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from assay.harness.checking.check import Check
from assay.harness.checking.reference import Reference
from assay.harness.models import capabilities
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.rows import Rows

IGNORED = -100
"""The label of a position that does not count, in transformers."""


def is_shifted(subject: Subject) -> bool:
    """Whether label i is predicted by the row before it.

    It is by design in a causal model; a masked one predicts a label where it stands.
    """
    return "shifted-labels" in capabilities.probe(subject)


def own(subject: Subject, ids: Tensor, labels: Tensor, **options: Any) -> float:
    """The loss that the model itself returns for ``labels`` [batch, n]."""
    loss: Any = subject(ids, states=False, labels=labels, **options).loss
    return float(loss)


def as_argument(subject: Subject, labels: Tensor) -> Tensor:
    """The argument ``labels`` [batch, n] of a model's forward, from labels at the rows that
    predict them.
    """
    if not is_shifted(subject):
        return labels
    moved = labels.roll(1, 1)
    moved[:, 0] = IGNORED
    return moved


@dataclass(frozen=True)
class Costs:
    """The cross-entropy of each label that counts [labels], in float64: of the reference's rows
    (``exact``), of the subject's (``plain``), and of the labels one position ``later``.

    Each is the difference of two numbers, a logit and a log-sum-exp; ``sizes`` are the sums of
    their magnitudes, to which rounding is relative: a cross-entropy near zero is their difference.
    """

    exact: Tensor
    plain: Tensor
    sizes: Tensor
    later: Tensor

    @classmethod
    def of(cls, expected: Reference, labels: Tensor, shifted: bool) -> Costs:
        """Of one reference's ``labels`` [batch, n]."""
        oracle = expected.oracle
        return cls(
            each(oracle, labels, shifted),
            each(expected.plain, labels, shifted),
            _sizes(oracle, labels, shifted),
            each(oracle, labels.roll(1, 1), shifted),
        )

    @classmethod
    def together(cls, parts: Sequence[Costs]) -> Costs:
        """Of several references."""
        names = [field.name for field in fields(cls)]
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    def judge(self, check: Check, loss: float, number: int) -> None:
        """The law: ``loss`` is the sum, divided by ``number``, as near as rounding allows."""
        exact, size = float(self.exact.sum()) / number, float(self.sizes.sum()) / number
        # The labels' own errors, of which many would cancel in the sum by luck.
        noise = float((self.plain - self.exact).abs().sum()) / number / size
        allowed = check.tolerance.allowed(noise)
        check.judge(abs(loss - exact) / size, allowed, "the loss")
        check.judge_control(abs(float(self.later.sum()) / number - exact) / size, allowed)
        check.sees(lambda share: (abs(loss + share * size - exact) / size, allowed), noise=noise)


def each(rows: Rows, labels: Tensor, shifted: bool) -> Tensor:
    """The cross-entropy of each of ``labels`` [batch, n] that counts, in float64: [labels]."""
    return torch.nn.functional.cross_entropy(*_counting(rows, labels, shifted), reduction="none")


def scored(subject: Subject, labels: Tensor) -> Tensor:
    """The labels but for those that the head does not score: some heads lack embedded ids."""
    return labels.where(labels < _width(subject), IGNORED)


@memo
def _width(subject: Subject) -> int:
    """How many ids the head scores."""
    ids = subject.content(torch.arange(subject.shortest, device=subject.device)[None])
    return subject.rows(ids, states=False)["logits"].shape[-1]


def _sizes(rows: Rows, labels: Tensor, shifted: bool) -> Tensor:
    scores, wanted = _counting(rows, labels, shifted)
    own = scores.gather(1, wanted[:, None])[:, 0]
    return own.abs() + scores.logsumexp(1).abs()


def _counting(rows: Rows, labels: Tensor, shifted: bool) -> tuple[Tensor, Tensor]:
    """The scores [labels, V] that predict the labels that count, in float64, and these labels."""
    logits = rows["logits"].double()
    if shifted:
        logits, labels = logits[:, :-1], labels[:, 1:]
    flat = logits.reshape(-1, logits.shape[-1])
    wanted = labels.reshape(-1).to(flat.device)
    counts = wanted != IGNORED
    return flat[counts], wanted[counts]


def counted(labels: Tensor, shifted: bool) -> int:
    """How many of ``labels`` count."""
    return int((labels[:, 1:] if shifted else labels).ne(IGNORED).sum())
