"""How well conditioned a model is from its input to a block's output (document 003)."""

from __future__ import annotations

import torch
from torch import Tensor

from harness import memory
from harness.inversion.descent import rows_that_fit
from harness.inversion.target import Target, embedded
from harness.subject import Subject


def jacobian(subject: Subject, target: Target, ids: Tensor) -> Tensor:
    """∂ O(e)[last] / ∂ e[last] of one prompt ``ids`` [n]: [features, d].

    Every output feature has a row of the batch to itself, so one backward pass gives them all.
    """
    features = target.features(subject)
    e = embedded(subject)[ids]
    parts: list[Tensor] = []

    def run(some: slice) -> None:
        mine = torch.arange(some.start, some.stop, device=e.device)
        leaf = e.expand(len(mine), -1, -1).clone().requires_grad_()
        last = target.of(subject, embeddings=leaf)[:, -1]
        (gradient,) = torch.autograd.grad(last.gather(1, mine[:, None]).sum(), leaf)
        parts.append(gradient[:, -1])

    memory.in_batches(run, features, rows_that_fit(subject, target, len(ids)))
    return torch.cat(parts)


def condition(matrix: Tensor) -> float:
    """The largest singular value over the least one, computed in float64."""
    values = torch.linalg.svdvals(matrix.double())
    return float(values[0] / values[-1].clamp_min(torch.finfo(torch.float64).tiny))
