"""Small models that attend to the future and models that do not, trained alike from many seeds.

Document 004 (answer 1) has it of language models that their states may be richer where they attend
to all that is there, and not only to what is to the left of them.  Here a label of every place is
predicted and no token, so that a toy without a mask never sees what it is asked for.  A toy has
token and place embeddings, one attention layer of two heads, a residual and a linear layer.  A
seed draws a toy's weights and all sequences, which its masked and its unmasked toy share; seeds do
not meet, each having its own slice of every parameter.
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
"""Steps after which the loss is taken: document 001's toys, too, are looked at after 500, at which
'they all predict ! and ?', and early.  After enough steps both kinds of toys have learned all that
they can, so that what they differ by is how soon."""

ROWS, HELD_OUT, RATE = 8, 64, 1e-2
"""Of a training: new sequences in each step, other sequences that the loss is taken of, and Adam's
rate."""


@dataclass(frozen=True)
class Task:
    """A label names two tokens, those so many ``places`` from it.

    A token is that before it with probability ``stay``, or else any, itself included.
    """

    places: tuple[int, int]
    stay: float = 0.5


LEFT = Task((-2, -1))
"""Labels need the left context only; the future is like it, as neighbours are alike."""

BOTH = Task((-1, 1))
"""Labels need a token from either side."""

NOISE = Task((-2, -1), stay=0.0)
"""Labels need the left context only, and the future is independent of it."""

ASKED = slice(2, LENGTH - 1)
"""Places that have a label: those of which every task's two tokens are there."""

SHAPES = {
    "tokens": (SYMBOLS, WIDTH),
    "places": (LENGTH, WIDTH),
    "attention": (WIDTH, 3 * WIDTH),
    "out": (WIDTH, WIDTH),
    "unembed": (WIDTH, SYMBOLS**2),
    "bias": (1, SYMBOLS**2),
}
"""Of a toy's parameters."""

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
    # A token is the last fresh one that is not to the right of it.
    last = torch.where(stays, 0, torch.arange(LENGTH)).cummax(1).values
    return fresh.gather(1, last)


def labels(task: Task, tokens: Tensor) -> Tensor:
    """Of sequences [..., LENGTH] at the places `ASKED`: [..., asked]."""
    places = torch.arange(LENGTH)[ASKED]
    one, other = (tokens[..., places + away] for away in task.places)
    return SYMBOLS * one + other


def logits(weights: Weights, tokens: Tensor, ahead: Tensor) -> Tensor:
    """Tokens [toys, rows, LENGTH] → [toys, rows, asked, classes].

    ``ahead`` [toys] says which toys attend to the future.
    """
    toys, rows, n = tokens.shape
    table = F.one_hot(tokens, SYMBOLS).flatten(1, 2).to(weights["tokens"])
    x = torch.unflatten(table @ weights["tokens"], 1, (rows, n)) + weights["places"][:, None]
    mixed = (x.flatten(1, 2) @ weights["attention"]).view(toys, rows, n, 3, HEADS, -1)
    q, k, v = mixed.permute(3, 0, 1, 4, 2, 5)
    hidden = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1) & ~ahead.view(-1, 1, 1)
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden[:, None, None], -torch.inf)
    seen = (scores.softmax(-1) @ v).transpose(2, 3)[:, :, ASKED].flatten(3).flatten(1, 2)
    x = x[:, :, ASKED].flatten(1, 2) + seen @ weights["out"]
    return torch.unflatten(x @ weights["unembed"] + weights["bias"], 1, (rows, -1))


def losses(weights: Weights, task: Task, tokens: Tensor, ahead: Tensor) -> Tensor:
    """The mean negative log-likelihood of a label, in nats: [toys]."""
    found = logits(weights, tokens, ahead).flatten(0, 2)
    wanted = labels(task, tokens)
    return F.cross_entropy(found, wanted.flatten(), reduction="none").view_as(wanted).mean((1, 2))


@functools.cache
def train(
    task: Task,
    seeds: tuple[int, ...],
    device: torch.device | None = None,
    at: tuple[int, ...] = STEPS,
) -> dict[int, tuple[Tensor, Tensor]]:
    """Held-out losses of the toys with a mask and of those without, in nats: [seeds] each.

    By steps, after those ``at``; cached, as several claims use it.
    """
    steps = sorted(at)
    return dict(zip(steps, _course(task, seeds, device, steps), strict=True))


def _course(
    task: Task, seeds: tuple[int, ...], device: torch.device | None, at: list[int]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The losses after each number of steps, one training long."""
    every = [draw_weights(seed) for seed in seeds]
    weights = {
        name: torch.stack([each[name] for each in every] * 2).to(device).requires_grad_()
        for name in SHAPES
    }
    rows = at[-1] * ROWS + HELD_OUT
    # Other numbers than those that the weights were drawn of.
    tokens = torch.stack([sequences(task, seed ^ 1, rows) for seed in seeds] * 2).to(device)
    ahead = torch.arange(2 * len(seeds), device=device) >= len(seeds)
    optimiser = torch.optim.Adam(weights.values(), lr=RATE, fused=True)
    for step, batch in enumerate(torch.split(tokens[:, HELD_OUT:], ROWS, dim=1), start=1):
        optimiser.zero_grad()
        torch.autograd.backward(losses(weights, task, batch, ahead).sum())  # toys do not meet
        optimiser.step()
        if step in at:
            with torch.no_grad():
                held_out = losses(weights, task, tokens[:, :HELD_OUT], ahead)
            masked, unmasked = held_out.cpu().double().chunk(2)
            yield masked, unmasked
