"""Document 003's own loop, slow and simple: fast code is checked and timed against it.

One prompt at a time; weights are not frozen, so that every step computes their gradients too;
the loss is read by the host at every step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.models.subject import Subject
from assay.harness.operations.inversion.target import Target


def descend(
    subject: Subject, target: Target, wanted: Tensor, start: Tensor, rate: float, steps: int
) -> tuple[Tensor, list[float]]:
    """Equation 2 for one prompt: ``wanted`` [n, features], ``start`` [n, d] before positions.

    Returns the embeddings [n, d] after ``steps``, and the loss before each step.
    """
    model = subject.model
    embeddings, losses = start.detach().clone(), []
    model.requires_grad_(True)
    try:
        for done in range(steps):
            model.zero_grad()
            embeddings = embeddings.detach().requires_grad_()
            output = target.output(subject, embeddings=embeddings[None])[0]
            loss = (output - wanted).abs().sum()
            torch.autograd.backward(loss)
            losses.append(loss.item())
            assert embeddings.grad is not None
            left = 1 - 0.9 * done / steps
            embeddings = embeddings - rate * left * embeddings.grad
    finally:
        model.zero_grad(set_to_none=True)
        model.requires_grad_(False)
    return embeddings.detach(), losses
