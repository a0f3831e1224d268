"""Measures of a subject's output: numbers, which findings compare with their bounds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from assay.harness.models.machine import batches
from assay.harness.models.machine.weights import rounding
from assay.harness.models.reference.tolerances import TOLERANCES, distance
from assay.harness.models.subject import Subject, configuration, masks, positions
from assay.harness.models.subject.roles import Role

FAR_AT_MOST = 0.3
"""A relative difference that is large in every dtype."""


def rows_that_fit(subject: Subject, n: int) -> int:
    """How many prompts of ``n`` tokens fit in one pass: at least 1.

    It counts states, attention scores and logits, all in memory at once.
    """
    numbers = n * (
        12 * subject.hidden + 3 * subject.vocabulary + 3 * configuration.heads(subject.config) * n
    )
    return batches.rows_that_fit(subject.device, numbers * subject.embedding_table.element_size())


def run_in_batches(subject: Subject, run: Callable[..., Tensor], *inputs: Tensor | None) -> Tensor:
    """``run`` over as many rows of ``inputs`` [batch, n, …] at a time as memory allows.

    Inputs that are None are passed on.  A pass that runs out of memory is retried with half.
    """
    first = next(each for each in inputs if each is not None)
    parts: list[Tensor] = []

    def some(rows: slice) -> None:
        parts.append(run(*(each if each is None else each[rows] for each in inputs)))

    batches.in_batches(some, len(first), rows_that_fit(subject, first.shape[1]))
    return torch.cat(parts)


def next_token(
    subject: Subject,
    ids: Tensor | None = None,
    places: Tensor | None = None,
    embeddings: Tensor | None = None,
    causal: bool = True,
) -> Tensor:
    """Log-probabilities of the token after each prompt: [batch, V], float64.

    ``ids`` [batch, n] or ``embeddings`` [batch, n, d]; ``places`` [batch, n] are unusual
    positions; without ``causal`` every token attends to all others.
    """
    mask_of = masks.causal if causal else masks.full
    only_last = {Role.KEPT_LOGITS: 1} if subject.takes(Role.KEPT_LOGITS) else {}

    def run(ids: Tensor | None, places: Tensor | None, embeddings: Tensor | None) -> Tensor:
        tensor = ids if ids is not None else embeddings
        assert tensor is not None
        mask = None
        if places is not None or not causal:
            # Without a mask, models read positions out of order as packed sequences.
            mask = mask_of(tensor.shape[1], subject.dtype, subject.device)
        rows = subject.rows(
            ids, embeddings=embeddings, positions=places, mask=mask, states=False, **only_last
        )
        return rows["logits"][:, -1].detach().double().log_softmax(-1)

    return run_in_batches(subject, run, ids, places, embeddings)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p ‖ q) in nats, of log-probabilities [batch, V]: [batch]."""
    return (p.exp() * (p - q)).sum(-1).clamp_min(0.0)


def same_top(p: Tensor, q: Tensor) -> Tensor:
    """Whether the most probable token is the same: bool [batch]."""
    return p.argmax(-1) == q.argmax(-1)


def far_distance(subject: Subject, times: float) -> float:
    """A relative difference of ``times`` the tolerance of laws, `FAR_AT_MOST` at most.

    A larger difference says no more, though multiples of 16-bit tolerances exceed it.
    """
    return min(times * TOLERANCES[rounding(subject.model, subject.dtype)].floor, FAR_AT_MOST)


def apart(one: Tensor, other: Tensor) -> Tensor:
    """The relative distance between rows [batch, features]: [batch], float64."""
    return distance(one[:, None], other[:, None])[:, 0]


def reorder(ids: Tensor, orders: Tensor) -> Tensor:
    """``ids`` [batch, n] with position j of row b taken from position ``orders[b, j]``."""
    return ids.gather(1, orders.to(ids.device))


def permuted_positions(subject: Subject, orders: Tensor) -> Tensor:
    """The ``position_ids`` [batch, n] of prompts whose positions are permuted by ``orders``."""
    return positions.usual(subject, orders.shape[1])[orders.to(subject.device)]


def continue_greedily(subject: Subject, ids: Tensor, places: Tensor, steps: int) -> Tensor:
    """A greedy continuation [batch, steps] of a prompt whose positions are ``places``.

    The new tokens have their usual positions.
    """
    n = ids.shape[1]
    later = positions.usual(subject, n + steps)
    mask = masks.causal(n, subject.dtype, subject.device)
    output = subject(ids, positions=places, mask=mask, keep=True, states=False)
    chosen = []
    for step in range(steps):
        token = output.rows["logits"][:, -1:].argmax(-1)
        chosen.append(token)
        if step == steps - 1:
            break
        at = later[n + step : n + step + 1]
        mask_row = torch.zeros(1, 1, 1, n + step + 1, dtype=subject.dtype, device=subject.device)
        output = subject(
            token, positions=at, mask=mask_row, cache=output.cache, keep=True, states=False
        )
    return torch.cat(chosen, dim=1)


def repeated_share(ids: Tensor, gram: int = 4) -> Tensor:
    """The share of each row's ``gram``-grams that repeat earlier ones: [batch, n] → [batch]."""
    shares = []
    for row in ids.tolist():
        grams = [tuple(row[i : i + gram]) for i in range(len(row) - gram + 1)]
        shares.append(1 - len(set(grams)) / len(grams) if grams else float("nan"))
    return torch.tensor(shares, dtype=torch.float64)
