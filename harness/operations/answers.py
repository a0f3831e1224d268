"""Judges a server's answers to requests by the model's own logits for the same tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from assay.harness.checking.reference import Reference
from assay.harness.models.capabilities.serving import Answer
from assay.harness.models.reference.tolerances import Tolerance, farthest
from assay.harness.models.subject import Subject
from assay.harness.models.subject.rows import Rows

MASKED = 1e30
"""Numbers this large are no logits: a float64 copy may mask by another dtype's largest number."""


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
    rows = expected.plain["logits"][0]
    logits = rows.double()
    below = logits.amax(-1) - _of(logits, tokens)
    return _worst(expected, below / row_lengths(rows), gap)


def apart(expected: Reference, answer: Answer, gap: float) -> float:
    """How far the answer's log probabilities are from float64's, in the worst step.

    As an error of the row of logits that would move them so far: their gradient is 1 for the
    token, less every token's probability.  Steps of near-tied experts do not count.
    """
    logits = expected.oracle["logits"][0].double()
    exact = _of(logits.log_softmax(-1), answer.tokens)
    logprobs = torch.tensor(answer.logprobs, dtype=torch.float64, device=logits.device)
    return _worst(expected, (logprobs - exact).abs() / _reach(expected, answer.tokens), gap)


def moved(expected: Reference, answer: Answer, size: float) -> Answer:
    """The answer with log probabilities that an error of ``size`` in every row would give."""
    far = size * _reach(expected, answer.tokens)
    return replace(answer, logprobs=(torch.tensor(answer.logprobs).to(far) + far).tolist())


def _reach(expected: Reference, tokens: Sequence[int]) -> Tensor:
    """How far an error as large as the row of logits moves each token's log probability [steps],
    and at least the length of the row.
    """
    logits = expected.oracle["logits"][0].double()
    places = torch.tensor(tokens, device=logits.device)
    gradient = one_hot(places, logits.shape[-1]) - logits.softmax(-1)
    # A token that is nearly certain has nearly no gradient, and its rounding is no smaller.
    steep = torch.linalg.vector_norm(gradient, dim=-1).clamp_min(1.0)
    return row_lengths(logits) * steep


def allowed(expected: Reference, tolerance: Tolerance) -> tuple[float, float]:
    """The largest `shortfall` and the largest distance (`apart`) of a sound server.

    Its logits may be off by the tolerance, and two of them differ by √2 times the errors of both
    paths.
    """
    plain = noise(expected)
    bound = tolerance.allowed(plain)
    return math.sqrt(2) * (plain + bound), bound


def noise(expected: Reference) -> float:
    """The relative error of the plain path's logits, in the worst step."""
    return farthest(expected.plain, expected.oracle)["logits"].error


def _of(values: Tensor, tokens: Sequence[int]) -> Tensor:
    """The value [steps] of each token among ``values`` [steps, V]."""
    return values.gather(1, torch.tensor(tokens, device=values.device)[:, None])[:, 0]


def _worst(expected: Reference, numbers: Tensor, gap: float) -> float:
    """The largest of ``numbers`` [steps], of settled steps; infinite where one is no number."""
    numbers = torch.where(torch.isnan(numbers), math.inf, numbers)
    if (mask := expected.row_mask(gap)) is not None:
        numbers = torch.where(mask[0], numbers, 0.0)
    return float(numbers.max())


def row_lengths(rows: Tensor) -> Tensor:
    """The lengths of ``rows`` [..., features] in float64: [...].

    Without the largest numbers of their dtype, by which some models mask what is no token.
    """
    most = min(torch.finfo(rows.dtype).max / 2, MASKED)
    exact = rows.double()
    return torch.linalg.vector_norm(torch.where(exact.abs() < most, exact, 0.0), dim=-1)
