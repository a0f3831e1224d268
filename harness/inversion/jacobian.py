"""How well conditioned a model is from its input to a block's output (document 003)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.harness.inversion.descent import rows_that_fit
from assay.harness.inversion.target import Target, embedded
from assay.harness.models.machine import memory
from assay.harness.models.machine.shortage import shortage
from assay.harness.models.subject import Subject


def jacobian(subject: Subject, target: Target, ids: Tensor) -> Tensor:
    """∂ O(e)[last] / ∂ e[last] of one prompt ``ids`` [n]: [features, d].

    One forward pass, and one backward for all output features at once.  Where an operation does
    not support that, every feature has its own row of a batch.
    """
    features = target.features(subject)
    e = embedded(subject)[ids]
    parts: list[Tensor] = []

    def run(some: slice) -> None:
        mine = torch.arange(some.start, some.stop, device=e.device)
        try:
            gradient = _at_once(subject, target, e, mine)
        except (RuntimeError, NotImplementedError) as error:
            if shortage(error):
                raise
            gradient = _row_by_row(subject, target, e, mine)
        parts.append(gradient[:, -1])

    memory.in_batches(run, features, rows_that_fit(subject, target, len(ids)))
    return torch.cat(parts)


def _at_once(subject: Subject, target: Target, e: Tensor, features: Tensor) -> Tensor:
    """The gradients [features, n, d] at ``e`` [n, d] of the last state's ``features``."""
    leaf = e[None].clone().requires_grad_()
    last = target.output(subject, embeddings=leaf)[0, -1]
    chosen = F.one_hot(features, len(last)).to(last)
    (gradients,) = torch.autograd.grad(last, leaf, chosen, is_grads_batched=True)
    return gradients[:, 0]


def _row_by_row(subject: Subject, target: Target, e: Tensor, features: Tensor) -> Tensor:
    """The same, each from a row of its own."""
    leaf = e.expand(len(features), -1, -1).clone().requires_grad_()
    last = target.output(subject, embeddings=leaf)[:, -1]
    (gradients,) = torch.autograd.grad(last.gather(1, features[:, None]).sum(), leaf)
    return gradients


def condition(matrix: Tensor) -> float:
    """The largest singular value over the smallest, computed in float64."""
    values = torch.linalg.svdvals(matrix.double())
    return float(values[0] / values[-1].clamp_min(torch.finfo(torch.float64).tiny))
