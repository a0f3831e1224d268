"""Gradient descent from a model's output back to its input, many rows at once (003, eq. 2).

Row r descends on ‖O(x_r) − O*_r‖ by itself; as many rows run together as fit into memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from assay.harness.inversion.batch import RUNNERS, Batch, Descent, Over, Rule
from assay.harness.inversion.target import Output, Target
from assay.harness.models.machine import batches
from assay.harness.models.subject import Subject, configuration
from assay.harness.operations.choices import check_choice
from assay.harness.results.errors import BadInput

KEPT = 20
"""Numbers that one layer stores for the backward pass, in units of the hidden size."""

Tell = Callable[[slice, int, Tensor, Tensor], None]
"""Called after a watched step with some rows, the step, their embeddings [R, n, d] and losses [R].

The loss of a row that has ended is NaN.
"""


def descend(
    subject: Subject,
    target: Output,
    goal: Tensor,
    start: Tensor,
    rates: Tensor,
    rule: Rule | None = None,
    *,
    thresholds: Tensor | None = None,
    until_close: bool = False,
    over: Over | None = None,
    watch: Sequence[int] = (),
    tell: Tell | None = None,
    runner: str = "",
) -> Descent:
    """Descend from ``start`` [R, n, d] to inputs whose output is ``goal`` [R, n, features].

    ``start`` and result are embedded tokens before positions.  ``rates`` [R] are the rows' initial
    learning rates.  A row is close once its loss is below its threshold in ``thresholds`` [R], and
    ends there with ``until_close``, or where ``over`` says so
    (`harness.inversion.batch.Over`; only if all rows fit into memory).  ``watch`` names
    steps after which embeddings are kept and passed to ``tell`` (again where memory ran out and a
    part is repeated).  ``runner`` runs the steps (`harness.inversion.batch.RUNNERS`).
    """
    rule, runner = rule or Rule(), choose_runner(runner, subject.device)
    check_target(subject, target, goal)
    if tuple(start.shape) != (*goal.shape[:2], subject.hidden):
        raise BadInput(
            f"start: its shape is {list(start.shape)}, and the target's is {list(goal.shape)}"
        )
    if tuple(rates.shape) != (len(start),):
        raise BadInput(f"rates: {len(start)} rows, and the shape is {list(rates.shape)}")
    if thresholds is None:
        thresholds = torch.full_like(rates, -math.inf)
    parts: list[Descent] = []

    def run(rows: slice) -> None:
        batch = Batch(subject, target, rule, goal[rows], start[rows], rates[rows], runner)
        callback = None if tell is None else partial(tell, rows)
        whole = over if len(start[rows]) == len(start) else None
        parts.append(batch.run(thresholds[rows], until_close, watch, callback, whole))

    notes: list[str] = []
    batches.in_batches(run, len(start), rows_that_fit(subject, target, start.shape[1]), notes)
    whole = Descent.concatenate(parts)
    whole.notes += notes
    if slower := int((whole.lowered > 0).sum()):
        whole.notes.append(
            f"{slower} of {len(start)} rows diverged; their learning rates were lowered"
        )
    return whole


def check_target(subject: Subject, target: Output, goal: Tensor) -> None:
    """Raise `BadInput` where ``goal`` is not an output of ``target``."""
    target.check(subject)
    if goal.ndim != 3 or not goal.shape[0] or not goal.shape[1]:
        raise BadInput(f"target: [rows, n, features] are needed and not {list(goal.shape)}")
    if goal.shape[2] != (width := target.features(subject)):
        raise BadInput(f"target: {target} has {width} features and not {goal.shape[2]}")
    if subject.context is not None and goal.shape[1] > subject.context:
        raise BadInput(f"target: {goal.shape[1]} positions and a context of {subject.context}")
    if not bool(goal.isfinite().all()):
        raise BadInput("target: holds numbers that are not finite")


def rows_that_fit(subject: Subject, target: Output, n: int) -> int:
    """Rows of ``n`` tokens whose forward and backward passes fit into the free memory."""
    layer = KEPT * subject.config.hidden_size + 3 * configuration.heads(subject.config) * n
    numbers = n * (target.depth * layer + 4 * target.features(subject) + 6 * subject.hidden)
    size = max(4, subject.embedding_table.element_size())
    return batches.rows_that_fit(subject.device, numbers * size)


def choose_runner(runner: str, device: torch.device) -> str:
    """The requested ``runner``, by default the device's: a replay, or a CUDA graph.

    Raises `BadInput` for an unknown or unavailable runner.
    """
    on_card = device.type == "cuda"
    if runner:
        check_choice("runner", runner, RUNNERS)
    if runner == "graph" and not on_card:
        raise BadInput(f"runner graph: needs CUDA, and the model is on {device}")
    return runner or ("graph" if on_card else "replay")


def slow_descent(
    subject: Subject, target: Target, goal: Tensor, start: Tensor, rate: float, steps: int
) -> tuple[Tensor, list[float]]:
    """Document 003's own loop for one prompt, which fast code is compared with and timed against.

    ``goal`` [n, features], ``start`` [n, d] before positions.  Weights are not frozen, so every
    step also computes their gradients; the host reads the loss at every step.  Returns the
    embeddings [n, d] after ``steps``, and the loss before each step.
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
