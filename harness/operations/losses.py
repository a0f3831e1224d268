"""A model's own loss of labels, and the cross-entropy that it must equal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.harness.models import capabilities
from assay.harness.models.rows import Rows
from assay.harness.models.subject import Subject
from assay.harness.operations.padding import Ragged

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


def of_padded(subject: Subject, batch: Ragged) -> Tensor:
    """The labels [batch, n] of a padded batch's own ids: those of padding do not count, nor does a
    label that a row of padding predicts.
    """
    labels = batch.ids.masked_fill(batch.mask == 0, IGNORED)
    if batch.left and is_shifted(subject):
        starts = batch.ids.shape[1] - torch.tensor(batch.lengths, device=labels.device)[:, None]
        labels = labels.scatter(1, starts, IGNORED)
    return labels


def at_labels(subject: Subject, labels: Tensor) -> Tensor:
    """``labels`` [batch, n] that stand at the rows that predict them, as the model takes them."""
    if not is_shifted(subject):
        return labels
    moved = labels.roll(1, 1)
    moved[:, 0] = IGNORED
    return moved


def each(rows: Rows, labels: Tensor, shifted: bool) -> Tensor:
    """The cross-entropy of each of ``labels`` [batch, n] that counts, in float64: [labels]."""
    return torch.nn.functional.cross_entropy(*_counting(rows, labels, shifted), reduction="none")


def sizes(rows: Rows, labels: Tensor, shifted: bool) -> Tensor:
    """The sizes of the two numbers whose difference each cross-entropy is, added: [labels].

    Rounding is relative to them: a cross-entropy near zero is their difference.
    """
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
