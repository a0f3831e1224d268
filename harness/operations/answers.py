"""Judges a server's answers to requests by the model's own logits for the same tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from assay.harness.checking.reference import Reference
from assay.harness.models.rows import Rows
from assay.harness.models.serving import Answer
from assay.harness.models.subject import Subject
from assay.harness.models.tolerances import Tolerance, farthest


def scored(subject: Subject, request: Sequence[int], tokens: Sequence[int]) -> Rows:
    """The logits [1, steps, V] that choose each of ``tokens`` after ``request``: one pass over
    both, without a cache and without other requests.
    """
    ids = torch.tensor([[*request, *tokens[:-1]]], device=subject.device)
    return subject.rows(ids, states=False).at(slice(len(request) - 1, None))


def shortfall(expected: Reference, tokens: Sequence[int], gap: float) -> float:
    """By how much another token is likelier than the one of ``tokens``, in the worst step.

    Relative to the length of the row of logits; 0 where each is the likeliest.  Steps whose
    experts are chosen by less than ``gap`` do not count.
    """
    logits = expected.plain["logits"][0].double()
    below = logits.amax(-1) - _of(logits, tokens)
    return _worst(expected, below / torch.linalg.vector_norm(logits, dim=-1), gap)


def apart(expected: Reference, answer: Answer, gap: float) -> float:
    """How far the answer's log probabilities are from float64's, in the worst step.

    Relative to the length of the row of logits; steps of near-tied experts do not count.
    """
    logits = expected.oracle["logits"][0].double()
    exact = _of(logits.log_softmax(-1), answer.tokens)
    given = torch.tensor(answer.logprobs, dtype=torch.float64, device=logits.device)
    size = torch.linalg.vector_norm(logits, dim=-1)
    return _worst(expected, (given - exact).abs() / size, gap)


def allowed(expected: Reference, tolerance: Tolerance) -> tuple[float, float]:
    """The largest `shortfall` and the largest distance (`apart`) of a sound server.

    If its logits are within the tolerance of float64, log probabilities are within √2 times as
    much, by their gradient; and a chosen token falls short by the errors of both paths.
    """
    plain = farthest(expected.plain, expected.oracle)["logits"].error
    bound = tolerance.allowed(plain)
    return math.sqrt(2) * (plain + bound), math.sqrt(2) * bound


def _of(values: Tensor, tokens: Sequence[int]) -> Tensor:
    """The value [steps] of each token among ``values`` [steps, V]."""
    return values.gather(1, torch.tensor(tokens, device=values.device)[:, None])[:, 0]


def _worst(expected: Reference, numbers: Tensor, gap: float) -> float:
    """The largest of ``numbers`` [steps], of settled steps; infinite where one is no number."""
    numbers = torch.where(torch.isnan(numbers), math.inf, numbers)
    if (settled := expected.settled(gap)) is not None:
        numbers = torch.where(settled[0], numbers, 0.0)
    return float(numbers.max())
