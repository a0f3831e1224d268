"""Document 003's own loop, slow and simple: the reference for checking and timing fast code.

It runs one prompt at a time; weights are not frozen, so every step also computes their gradients;
the host reads the loss at every step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.inversion.target import Target
from assay.harness.models.subject import Subject


def descend(
    subject: Subject, target: Target, goal: Tensor, start: Tensor, rate: float, steps: int
) -> tuple[Tensor, list[float]]:
    """Equation 2 for one prompt: ``goal`` [n, features], ``start`` [n, d] before positions.

    Returns the embeddings [n, d] after ``steps``, and the loss before each step.
    """
    model = subject.model
    embeddings, losses = start.detach().clone(), []
    model.requires_grad_(True)
    try:
        for step in range(steps):
            model.zero_grad()
            embeddings = embeddings.detach().requires_grad_()
            output = target.output(subject, embeddings=embeddings[None])[0]
            loss = (output - goal).abs().sum()
            torch.autograd.backward(loss)
            losses.append(loss.item())
            assert embeddings.grad is not None
            factor = 1 - 0.9 * step / steps
            embeddings = embeddings - rate * factor * embeddings.grad
    finally:
        model.zero_grad(set_to_none=True)
        model.requires_grad_(False)
    return embeddings.detach(), losses
