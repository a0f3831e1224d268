"""Tries other tokens at all places of prompts at once, to see whether they give the same states.

Each prompt that was found is run once, and fills a cache.  The rivals of its tokens branch off
from it: each attends to the prompt before its place, and to itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.inversion.candidates import Prefixes, accepted, relative
from assay.harness.inversion.linear_map import LinearMap
from assay.harness.inversion.token_by_token import ROUNDS, SearchResult


def undecided(
    prefixes: Prefixes, known: LinearMap, goal: Tensor, found: SearchResult, near: Tensor
) -> Tensor:
    """Try rivals at the places ``near`` [rows, n]; return those that have to be searched.

    ``prefixes`` are empty, and ``found`` are the tokens for ``goal`` [rows, n, F].  Rivals that
    give the goal as well are listed in ``found.others``, and a nearer one replaces the token.  A
    place has to be searched if there is a nearer one, if so many give the goal that there may be
    more, or if the branch of the token found does not give it; all of them, where the model's
    prompts cannot branch.
    """
    if not prefixes.branching(goal.shape[1]) or (states := prefixes.extend(found.ids)) is None:
        return near
    shift = known.features(goal - states)
    close, open_, search = accepted(prefixes.subject), near.clone(), torch.zeros_like(near)
    equals: list[tuple[Tensor, Tensor]] = []
    for count in ROUNDS:  # of equal ones any may come first, so that each round tries all again
        places = open_.any(0).nonzero()[:, 0]
        if not len(places) or count >= prefixes.subject.vocabulary:
            break
        tokens = _rivals(known, found.ids[:, places], places, count, shift[:, places])
        both = torch.cat([found.ids[:, places, None], tokens], dim=2)
        off = _off(prefixes, places, both, goal)
        own, others, here = off[..., 0], off[..., 1:], open_[:, places]
        found.tried[:, places] += here * tokens.shape[2]
        least, best = others.min(2)
        right = here & (own <= close)
        nearer = right & (least < torch.minimum(own, found.distances[:, places]))
        equal = (others <= close) & (right & ~nearer)[..., None]
        equals += [_listed(places, tokens, equal)]
        best = tokens.gather(2, best[..., None])[..., 0]
        found.ids[:, places] = torch.where(nearer, best, found.ids[:, places])
        found.distances[:, places] = torch.where(nearer, least, found.distances[:, places])
        search[:, places] |= here & (nearer | ~right)
        # The farthest of them gives the goal as well: further ones may.
        open_[:, places] = equal[..., -1]
        open_ &= ~search
    found.passes += prefixes.passes
    search |= open_
    _note(found, equals, ~search)
    return search


def _rivals(known: LinearMap, ids: Tensor, places: Tensor, count: int, shift: Tensor) -> Tensor:
    """The ``count`` likeliest rivals of ``ids`` [k, P] at ``places`` [P]: [k, P, count].

    The goal differs from their states by ``shift`` [k, P, f].
    """
    rivals = ids.new_empty(*ids.shape, count)
    for place, here in enumerate((places == 0, places > 0)):
        if bool(here.any()):
            own, off = ids[:, here].flatten(), shift[:, here].flatten(0, 1)
            found = known.others(own, place, count, off)
            rivals[:, here] = found.reshape(len(ids), -1, count)
    return rivals


def _off(prefixes: Prefixes, places: Tensor, tokens: Tensor, goal: Tensor) -> Tensor:
    """How far states of ``tokens`` [k, P, c] are from ``goal`` at ``places`` [P]: [k, P, c]."""
    at = places.repeat_interleave(tokens.shape[2])
    off = [
        relative(states, goal[:, at[first : first + states.shape[1]]])
        for first, states in prefixes.states_at(at, tokens.flatten(1))
    ]
    return torch.cat(off, dim=1).reshape(tokens.shape)


def _listed(places: Tensor, tokens: Tensor, equal: Tensor) -> tuple[Tensor, Tensor]:
    """The rows and places of ``tokens`` [k, P, c] that are ``equal`` [k, P, c], and these."""
    row, place, _ = where = equal.nonzero(as_tuple=True)
    return torch.stack([row, places[place]], dim=1), tokens[where]


def _note(found: SearchResult, equals: list[tuple[Tensor, Tensor]], decided: Tensor) -> None:
    """List what is equal at places that are ``decided`` [rows, n]."""
    rivals: dict[tuple[int, int], set[int]] = {}
    for where, tokens in equals:
        for (row, place), token in zip(where.tolist(), tokens.tolist(), strict=True):
            if bool(decided[row, place]):
                rivals.setdefault((row, place), {int(found.ids[row, place])}).add(token)
    found.others |= {where: sorted(tokens) for where, tokens in rivals.items()}
