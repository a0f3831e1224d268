"""Recovers what the last position's state alone tells of a prompt (after arXiv 2511.06571)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.harness.inversion import decoding
from assay.harness.inversion.linear_map import ridge
from assay.harness.inversion.target import Target, embedded
from assay.harness.models.subject import Subject

TOKENS_AT_ONCE = 4096
"""Tokens in one pass."""


@dataclass(frozen=True)
class Probes:
    """Linear maps from the last state to the embedding of the token at each of n positions.

    ``mean`` [f] of the states, ``means`` [n, d] of the embeddings, ``slopes`` [f, n x d].
    """

    table: Tensor
    mean: Tensor
    means: Tensor
    slopes: Tensor

    def decode(self, states: Tensor) -> Tensor:
        """The tokens nearest to what last ``states`` [rows, f] predict: ids [rows, n]."""
        predicted = (states.double() - self.mean) @ self.slopes
        points = predicted.reshape(len(states), *self.means.shape) + self.means
        return decoding.nearest(self.table, points.to(self.table.dtype))


def last_states(subject: Subject, target: Target, ids: Tensor) -> Tensor:
    """The last states of prompts ``ids`` [rows, n]: [rows, f]."""
    some = ids.split(max(1, TOKENS_AT_ONCE // ids.shape[1]))
    return torch.cat([target.output(subject, each)[:, -1] for each in some])


def probes(subject: Subject, target: Target, ids: Tensor) -> Probes:
    """The probes fitted, by ridge regression, to prompts ``ids`` [rows, n]."""
    table = embedded(subject)
    states = last_states(subject, target, ids).double()
    tokens = table[ids].double()
    mean, means = states.mean(0), tokens.mean(0)
    return Probes(table, mean, means, ridge(states - mean, (tokens - means).flatten(1)))
