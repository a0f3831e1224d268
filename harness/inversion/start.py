"""The start of a descent, and the unit of its learning rate."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.inversion.batch import DISTANCES, Rule
from assay.harness.inversion.target import Output, embedded, places_added
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.operations import likeliest

MEAN, STD = 1 / 2, 1 / 20
"""Mean and standard deviation of document 003's noise, e_0 ~ N(1/2, 1/20)."""


@memo
def spread(subject: Subject) -> float:
    """The standard deviation of the embedding's elements."""
    return likeliest.std(embedded(subject))


def documented(subject: Subject, normal: Tensor, slip: bool = False) -> Tensor:
    """e_0 ~ N(1/2, 1/20) of standard ``normal`` numbers [rows, n, d], positions included.

    The result is without positions, as `descend` expects: the model's own are subtracted.
    """
    noise = MEAN + STD * normal.to(subject.device)
    return noise - places_added(subject, normal.shape[1], slip).to(noise)


def scaled(subject: Subject, normal: Tensor, slip: bool = False) -> Tensor:
    """Noise of mean 0 and the scale of the subject's embedding, everywhere: [rows, n, d]."""
    return spread(subject) * normal.to(subject.device)


def unit(subject: Subject, target: Output, goal: Tensor, start: Tensor, rule: Rule) -> float:
    """The learning rate at which the first step has the embedding's own scale.

    For plain descent, the standard deviation of the embedding over that of the first gradient;
    Adam's steps have the size of its rate for every gradient.
    """
    if rule.optimiser == "adam":
        return spread(subject)
    x = start.detach().to(subject.device, subject.dtype).requires_grad_()
    output = target.output(subject, embeddings=x)
    loss = DISTANCES[rule.distance](output.float() - goal.to(output.device).float())
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    return spread(subject) / max(float(gradient.float().std()), torch.finfo(torch.float32).tiny)
