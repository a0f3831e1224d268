"""Recovers prompts from their states in unknown order (after arXiv 2505.18332)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.harness.inversion.candidates import Prefixes, accepted
from assay.harness.inversion.linear_map import LinearMap
from assay.harness.inversion.set_up import linear_map
from assay.harness.inversion.target import Target
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject

ROUNDS = (1, 8, 64)
"""Tokens tried for each state that is left, at one place, in each round."""

AT_ONCE = 256
"""Tokens whose states are compared at a time with all that are left."""


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
    known = linear_map(subject, target, n)
    ids = torch.zeros(rows, n, dtype=torch.long, device=states.device)
    order = torch.arange(n, device=states.device).repeat(rows, 1)
    verified = torch.zeros_like(ids, dtype=torch.bool)
    prefixes, alive = Prefixes(subject, target, rows), torch.arange(rows, device=states.device)
    for place in range(n):
        left = order[alive, place:]  # those placed come first
        goals = states[alive[:, None], left]
        tokens, which, least = _next(known, prefixes, goals, alive)
        ids[alive, place] = tokens
        found = order[alive, place + which]
        order[alive, place + which], order[alive, place] = order[alive, place], found
        verified[alive, place] = least <= accepted(subject)
        prefixes.append(ids[:, place])
        alive = alive[verified[alive, place]]
    return Unshuffled(ids, order, verified, prefixes.passes)


def _next(
    known: LinearMap, prefixes: Prefixes, goals: Tensor, rows: Tensor
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
        tried = _proposed(known, goals[todo], place, moved, count)
        made = torch.cat([part for _, part in prefixes.states(tried, rows[todo])], dim=1)
        if shift is None:
            shift = known.features(made) - known.expected(tried, place)
        nearest, column, goal = _nearest(made, goals[todo])
        better = nearest < least[todo]
        where = todo[better]
        least[where], which[where] = nearest[better], goal[better]
        tokens[where] = tried.gather(1, column[:, None])[:, 0][better]
    return tokens, which, least


def _proposed(
    known: LinearMap, goals: Tensor, place: int, shift: Tensor | None, count: int
) -> Tensor:
    """The ``count`` likeliest tokens of each of ``goals`` [k, left, f]: [k, left x count].

    Every token once where that is all of them.
    """
    vocabulary = len(known.table)
    if count == vocabulary:
        return torch.arange(count, device=goals.device).expand(len(goals), -1)
    moved = None if shift is None else shift.flatten(0, 1)
    misses = known.misses(goals.flatten(0, 1), place, moved)
    return misses.topk(count, largest=False).indices.reshape(len(goals), -1)


def _nearest(made: Tensor, goals: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The least distance between ``made`` [k, C, f] and ``goals`` [k, left, f], and where.

    The distance, the column of ``made`` and that of ``goals``: all [k].
    """
    best = [
        distance(some[:, :, None], goals[:, None]).nan_to_num(nan=torch.inf).flatten(1).min(1)
        for some in made.split(AT_ONCE, dim=1)
    ]
    nearest, chunk = torch.stack([each.values for each in best], 1).min(1)
    at = torch.stack([each.indices for each in best], 1).gather(1, chunk[:, None])[:, 0]
    return nearest, chunk * AT_ONCE + at // goals.shape[1], at % goals.shape[1]
