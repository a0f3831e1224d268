"""Small models that attend to the future and models that do not, trained alike from many seeds.

Document 004 (answer 1) says that a language model's states may be richer if they attend to the
whole context, not only to the left.  Here the models predict a label of every position, not a
token, so that a toy without a mask never sees its answer.  A toy has token and position
embeddings, one attention layer of two heads, a residual and a linear layer.  A seed draws a toy's
weights and all sequences, which its masked and its unmasked toy share; seeds are independent,
since each has its own slice of every parameter.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

SYMBOLS, LENGTH, WIDTH, HEADS = 3, 8, 16, 2

STEPS = (100, 500)
"""Steps after which the loss is measured: early, and after 500, at which document 001's toys 'all
predict ! and ?'.  After enough steps both kinds of toys have learned all that they can, so they
differ only in how soon."""

ROWS, HELD_OUT, RATE = 8, 64, 1e-2
"""Of a training: new sequences in each step, held-out sequences for the loss, and Adam's learning
rate."""


@dataclass(frozen=True)
class Task:
    """A label encodes two tokens, at offsets ``places`` from its position.

    A token repeats the one before it with probability ``stay``, and is uniform otherwise.
    """

    places: tuple[int, int]
    stay: float = 0.5


LEFT = Task((-2, -1))
"""Labels need the left context only; the future is like it, as neighbours are alike."""

BOTH = Task((-1, 1))
"""Labels need a token from either side."""

NOISE = Task((-2, -1), stay=0.0)
"""Labels need the left context only, and the future is independent of it."""

LABELLED = slice(2, LENGTH - 1)
"""Positions with a label: those where every task's two tokens exist."""

SHAPES = {
    "tokens": (SYMBOLS, WIDTH),
    "places": (LENGTH, WIDTH),
    "attention": (WIDTH, 3 * WIDTH),
    "out": (WIDTH, WIDTH),
    "unembed": (WIDTH, SYMBOLS**2),
    "bias": (1, SYMBOLS**2),
}
"""The shapes of a toy's parameters."""

Weights = dict[str, Tensor]


def draw_weights(seed: int) -> Weights:
    """A toy's weights: embeddings of scale 1, others of 1 / √(inputs), a bias of 0."""
    generator = torch.Generator().manual_seed(seed)
    scale = {"tokens": 1.0, "places": 1.0, "bias": 0.0}
    return {
        name: scale.get(name, shape[0] ** -0.5) * torch.randn(shape, generator=generator)
        for name, shape in SHAPES.items()
    }


def sequences(task: Task, seed: int, rows: int) -> Tensor:
    """Tokens of a task: [rows, LENGTH]."""
    generator = torch.Generator().manual_seed(seed)
    fresh = torch.randint(SYMBOLS, (rows, LENGTH), generator=generator)
    stays = torch.rand(rows, LENGTH, generator=generator) < task.stay
    stays[:, 0] = False
    # A token is the last fresh one up to its position.
    last = torch.where(stays, 0, torch.arange(LENGTH)).cummax(1).values
    return fresh.gather(1, last)


def labels(task: Task, tokens: Tensor) -> Tensor:
    """The labels of sequences [..., LENGTH] at the positions `LABELLED`: [..., labelled]."""
    places = torch.arange(LENGTH)[LABELLED]
    one, other = (tokens[..., places + away] for away in task.places)
    return SYMBOLS * one + other


def logits(weights: Weights, tokens: Tensor, ahead: Tensor) -> Tensor:
    """Tokens [toys, rows, LENGTH] → [toys, rows, labelled, classes].

    ``ahead`` [toys] says which toys attend to the future.
    """
    toys, rows, n = tokens.shape
    table = F.one_hot(tokens, SYMBOLS).flatten(1, 2).to(weights["tokens"])
    x = torch.unflatten(table @ weights["tokens"], 1, (rows, n)) + weights["places"][:, None]
    mixed = (x.flatten(1, 2) @ weights["attention"]).view(toys, rows, n, 3, HEADS, -1)
    q, k, v = mixed.permute(3, 0, 1, 4, 2, 5)
    hidden = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1) & ~ahead.view(-1, 1, 1)
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden[:, None, None], -torch.inf)
    attended = (scores.softmax(-1) @ v).transpose(2, 3)[:, :, LABELLED].flatten(3).flatten(1, 2)
    x = x[:, :, LABELLED].flatten(1, 2) + attended @ weights["out"]
    return torch.unflatten(x @ weights["unembed"] + weights["bias"], 1, (rows, -1))


def losses(weights: Weights, task: Task, tokens: Tensor, ahead: Tensor) -> Tensor:
    """The mean negative log-likelihood of a label, in nats: [toys]."""
    scores = logits(weights, tokens, ahead).flatten(0, 2)
    targets = labels(task, tokens)
    errors = F.cross_entropy(scores, targets.flatten(), reduction="none")
    return errors.view_as(targets).mean((1, 2))


@functools.cache
def train(
    task: Task,
    seeds: tuple[int, ...],
    device: torch.device | None = None,
    at: tuple[int, ...] = STEPS,
) -> dict[int, tuple[Tensor, Tensor]]:
    """Held-out losses of the toys with a mask and of those without, in nats: [seeds] each.

    By the number of steps, for those in ``at``; cached, since several claims use it.
    """
    steps = sorted(at)
    return dict(zip(steps, _course(task, seeds, device, steps), strict=True))


def _course(
    task: Task, seeds: tuple[int, ...], device: torch.device | None, at: list[int]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The losses after each number of steps of one training."""
    every = [draw_weights(seed) for seed in seeds]
    weights = {
        name: torch.stack([each[name] for each in every] * 2).to(device).requires_grad_()
        for name in SHAPES
    }
    rows = at[-1] * ROWS + HELD_OUT
    # Another seed than that of the weights.
    tokens = torch.stack([sequences(task, seed ^ 1, rows) for seed in seeds] * 2).to(device)
    ahead = torch.arange(2 * len(seeds), device=device) >= len(seeds)
    optimiser = torch.optim.Adam(weights.values(), lr=RATE, fused=True)
    for step, batch in enumerate(torch.split(tokens[:, HELD_OUT:], ROWS, dim=1), start=1):
        optimiser.zero_grad()
        torch.autograd.backward(losses(weights, task, batch, ahead).sum())  # toys are independent
        optimiser.step()
        if step in at:
            with torch.no_grad():
                held_out = losses(weights, task, tokens[:, :HELD_OUT], ahead)
            masked, unmasked = held_out.cpu().double().chunk(2)
            yield masked, unmasked
