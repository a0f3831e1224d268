"""Inverts less than all states in order: the states in unknown order, or the last state alone.

The former after arXiv 2505.18332, the latter by linear probes after arXiv 2511.06571.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.harness.inversion.candidates import Prefixes, accepted
from assay.harness.inversion.decoding import nearest
from assay.harness.inversion.descent import check_target
from assay.harness.inversion.linear import LinearMap, ridge
from assay.harness.inversion.methods import Inversion
from assay.harness.inversion.set_up import draw_prompts, linear_map, text_of
from assay.harness.inversion.target import Target, embedded, without_head
from assay.harness.inversion.token_by_token import SearchResult
from assay.harness.models import capabilities
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput

GIVEN = ("all", "shuffled", "last")
"""What is known of an output: the states of all positions in order, the same in unknown order, or
that of the last position."""

FITTED = 2048
"""Prompts that the probes of a last state are fitted to."""

ROUNDS = (1, 8, 64)
"""Tokens tried for each state that is left, at one place, in each round."""

AT_ONCE = 256
"""Tokens whose states are compared at a time with all that are left."""

TOKENS_AT_ONCE = 4096
"""Tokens in one pass."""


def from_shuffled(subject: Subject, target: Target, states: Tensor) -> tuple[Inversion, Tensor]:
    """The prompts with ``states`` [rows, n, f] in some order, and that order [rows, n].

    The order names, for each position, the one of ``states`` that is verified there.  Raises
    `BadInput` for a model that is not causal.
    """
    check_target(subject, target, states)
    if (why := capabilities.probe(subject).why_missing("causal")) is not None:
        raise BadInput(f"shuffled states: need a causal model ({why})")
    began = time.perf_counter()
    set_up = linear_map(subject, target, states.shape[1]).states
    took = time.perf_counter() - began
    prompts = unshuffle(subject, target, states)
    rows, n = prompts.ids.shape
    result = SearchResult.blank(rows, n, prompts.ids.device)
    result.ids, result.verified = prompts.ids, prompts.verified
    goal = states.gather(1, prompts.order[..., None].expand_as(states))
    result.distances = distance(target.output(subject, prompts.ids), goal).double()
    result.passes += prompts.passes
    result.set_up, result.set_up_seconds = set_up, took
    return _noted(Inversion(**vars(result), method="exact")), prompts.order


def from_last(subject: Subject, target: Target, last: Tensor, n: int) -> Inversion:
    """The prompts of ``n`` tokens that linear probes read off their ``last`` states [rows, f].

    Few tokens are right.  A prompt is verified, all of it, where its own last state is that given.
    Raises `BadInput` for logits that do not determine the state.
    """
    check_target(subject, target, last[:, None])
    target, goal = without_head(subject, target, last[:, None])
    began = time.perf_counter()
    probe = fit_probes(subject, target, n)
    took = time.perf_counter() - began
    ids = probe.decode(goal[:, 0])
    result = SearchResult.blank(len(ids), n, ids.device)
    result.ids = ids
    off = distance(target.output(subject, ids)[:, -1:], goal).double()
    result.distances = off.expand(-1, n).clone()
    result.verified = result.distances <= accepted(subject)
    result.passes += 1
    result.set_up, result.set_up_seconds = FITTED * n, took
    return _noted(Inversion(**vars(result), method="exact"))


def fit_probes(subject: Subject, target: Target, n: int) -> Probes:
    """Probes fitted to prompts of ``n`` tokens: text, where there is a tokenizer, and random."""
    draw = torch.Generator().manual_seed(4)
    return probes(subject, target, draw_prompts(subject, text_of(subject), FITTED, n, draw))


def _noted(result: Inversion) -> Inversion:
    if missed := int((~result.verified).sum()):
        result.notes.append(f"{missed} of {result.ids.numel()} tokens are not verified")
    return result


@dataclass(frozen=True)
class Unshuffled:
    """Recovered prompts.

    ``ids`` [rows, n]; ``order`` [rows, n], which of the given states is at each position;
    ``verified`` [rows, n], whether the token's own state is that one.  Where no token gives any
    of the states that are left, the rest of a row is not searched, and not verified.  ``passes``
    of the model were made.
    """

    ids: Tensor
    order: Tensor
    verified: Tensor
    passes: int = 0


def unshuffle(subject: Subject, target: Target, states: Tensor) -> Unshuffled:
    """The prompts with ``states`` [rows, n, f] in some order, position by position.

    Every state that is left proposes its likeliest tokens for the next position; the one that a
    pass gives back is there.  Where that fails, all tokens are tried.
    """
    rows, n, _ = states.shape
    linear = linear_map(subject, target, n)
    ids = torch.zeros(rows, n, dtype=torch.long, device=states.device)
    order = torch.arange(n, device=states.device).repeat(rows, 1)
    verified = torch.zeros_like(ids, dtype=torch.bool)
    prefixes, alive = Prefixes(subject, target, rows), torch.arange(rows, device=states.device)
    for place in range(n):
        left = order[alive, place:]  # those placed come first
        goals = states[alive[:, None], left]
        tokens, which, least = _next(linear, prefixes, goals, alive)
        ids[alive, place] = tokens
        index = order[alive, place + which]
        order[alive, place + which], order[alive, place] = order[alive, place], index
        verified[alive, place] = least <= accepted(subject)
        prefixes.append(ids[:, place])
        alive = alive[verified[alive, place]]
    return Unshuffled(ids, order, verified, prefixes.passes)


def _next(
    linear: LinearMap, prefixes: Prefixes, goals: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The next token of ``rows`` [k], which of ``goals`` [k, left, f] it gives, and how nearly.

    All [k].
    """
    subject, place = prefixes.subject, len(prefixes)
    tokens, which = torch.zeros(2, len(rows), dtype=torch.long, device=goals.device)
    least = torch.full((len(rows),), torch.inf, dtype=torch.float64, device=goals.device)
    shift: Tensor | None = None  # by how much the map is off, for the state that is of this place
    for count in (*(size for size in ROUNDS if size < subject.vocabulary), subject.vocabulary):
        todo = (least > accepted(subject)).nonzero()[:, 0]
        if not len(todo):
            break
        moved = None if shift is None else shift[todo]
        tried = _proposed(linear, goals[todo], place, moved, count)
        states = torch.cat([part for _, part in prefixes.states(tried, rows[todo])], dim=1)
        if shift is None:
            shift = linear.features(states) - linear.expected(tried, place)
        nearest, column, goal = _nearest(states, goals[todo])
        better = nearest < least[todo]
        where = todo[better]
        least[where], which[where] = nearest[better], goal[better]
        tokens[where] = tried.gather(1, column[:, None])[:, 0][better]
    return tokens, which, least


def _proposed(
    linear: LinearMap, goals: Tensor, place: int, shift: Tensor | None, count: int
) -> Tensor:
    """The ``count`` likeliest tokens of each of ``goals`` [k, left, f]: [k, left x count].

    Every token once where that is all of them.
    """
    vocabulary = len(linear.table)
    if count == vocabulary:
        return torch.arange(count, device=goals.device).expand(len(goals), -1)
    moved = None if shift is None else shift.flatten(0, 1)
    misses = linear.misses(goals.flatten(0, 1), place, moved)
    return misses.topk(count, largest=False).indices.reshape(len(goals), -1)


def _nearest(states: Tensor, goals: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The least distance between ``states`` [k, C, f] and ``goals`` [k, left, f], and where.

    The distance, the column of ``states`` and that of ``goals``: all [k].
    """
    best = [
        distance(some[:, :, None], goals[:, None]).nan_to_num(nan=torch.inf).flatten(1).min(1)
        for some in states.split(AT_ONCE, dim=1)
    ]
    nearest, chunk = torch.stack([each.values for each in best], 1).min(1)
    at = torch.stack([each.indices for each in best], 1).gather(1, chunk[:, None])[:, 0]
    return nearest, chunk * AT_ONCE + at // goals.shape[1], at % goals.shape[1]


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
        return nearest(self.table, points.to(self.table.dtype))


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
