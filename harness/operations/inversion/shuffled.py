"""Recovers prompts from their states in unknown order (after arXiv 2505.18332)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.harness.models.subject import Subject
from assay.harness.models.tolerances import distance
from assay.harness.operations.inversion.candidates import Prefixes, accepted
from assay.harness.operations.inversion.linear_map import LinearMap
from assay.harness.operations.inversion.set_up import linear_map
from assay.harness.operations.inversion.target import Target

ROUNDS = (1, 8, 64)
"""Tokens tried for each state that is left, at one place, in each round."""


@dataclass(frozen=True)
class Unshuffled:
    """Recovered prompts.

    ``ids`` [rows, n]; ``order`` [rows, n], which of the given states is at each position;
    ``verified`` [rows, n], whether the token's own state is that one.  Where no token gives any
    of the states that are left, the rest of a row is not searched, and not verified.
    """

    ids: Tensor
    order: Tensor
    verified: Tensor


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
    return Unshuffled(ids, order, verified)


def _next(
    known: LinearMap, prefixes: Prefixes, goals: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The next token of ``rows`` [k], which of ``goals`` [k, left, f] it gives, and how nearly.

    All [k].
    """
    subject, place = prefixes.subject, len(prefixes)
    close, shift = accepted(subject), None
    best = torch.zeros(len(rows), 2, dtype=torch.long, device=goals.device)
    least = torch.full((len(rows),), torch.inf, dtype=torch.float64, device=goals.device)
    for count in (*(size for size in ROUNDS if size < subject.vocabulary), subject.vocabulary):
        todo = (least > close).nonzero()[:, 0]
        if not len(todo):
            break
        if count == subject.vocabulary:
            tokens = torch.arange(count, device=goals.device).expand(len(todo), -1)
        else:
            moved = None if shift is None else shift[todo].flatten(0, 1)
            misses = known.misses(goals[todo].flatten(0, 1), place, moved)
            tokens = misses.topk(count, largest=False).indices.reshape(len(todo), -1)
        off, at, parts = [], [], []
        for first, made in prefixes.states(tokens, rows[todo]):
            apart = distance(made[:, :, None], goals[todo][:, None]).nan_to_num(nan=torch.inf)
            nearest, where = apart.flatten(1).min(1)
            off.append(nearest)
            at.append(where + first * goals.shape[1])
            parts.append(made)
        if shift is None:  # by how much the map is off, for the state that is of this place
            shift = torch.cat(parts, dim=1) - known.expected(tokens, place)
        nearest, chunk = torch.stack(off, 1).min(1)
        where = torch.stack(at, 1).gather(1, chunk[:, None])[:, 0]
        better = nearest < least[todo]
        least[todo[better]] = nearest[better]
        token = tokens.gather(1, (where // goals.shape[1])[:, None])[:, 0]
        best[todo[better]] = torch.stack([token, where % goals.shape[1]], 1)[better]
    return best[:, 0], best[:, 1], least
