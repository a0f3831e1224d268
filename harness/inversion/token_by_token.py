"""Exact inversion of a causal model, token by token, every answer verified by running it.

`exhaustive` tries every token of the vocabulary.  `ranked` ranks them first, by a linear map from
embeddings to states, and rarely has to try more than a few.  What other prompts add to a state is
taken to be the same for every token, and is estimated from the tokens that were tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.harness.inversion.candidates import Prefixes, accepted, relative
from assay.harness.inversion.linear import LinearMap
from assay.harness.inversion.rotated_keys import without_rotation
from assay.harness.inversion.set_up import linear_map
from assay.harness.inversion.target import Target
from assay.harness.models.subject import Subject

ROUNDS = (8, 64, 512)
"""The number of candidates tried after each round of `ranked`; the last round tries all."""

LOCAL = 2
"""How many of the nearest tried tokens estimate the prompt's contribution to a state."""


@dataclass
class SearchResult:
    """The result of a search for outputs [rows, n, features].

    ``ids`` [rows, n]; ``verified`` [rows, n] (bool), whether the token's own state is the goal's;
    ``distances`` [rows, n], its relative distance; ``tried`` [rows, n], candidates whose states
    were computed; ``passes`` [rows], passes that a row took part in; ``others``, by (row, place)
    all verified tokens, where there are several; ``set_up``, states computed before the search,
    and ``set_up_seconds``, the time for them in this call; ``exhaustive``, whether all tokens were
    tried, so that ``others`` is complete; ``ended``, whether the time limit ended the search.
    """

    ids: Tensor
    verified: Tensor
    distances: Tensor
    tried: Tensor
    passes: Tensor
    others: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    set_up: int = 0
    exhaustive: bool = False
    set_up_seconds: float = 0.0
    ended: bool = False

    @classmethod
    def blank(cls, rows: int, n: int, device: torch.device) -> SearchResult:
        """Nothing is known of ``rows`` prompts of ``n`` tokens."""
        ids = torch.zeros(rows, n, dtype=torch.long, device=device)
        nowhere = torch.full((rows, n), torch.inf, dtype=torch.float64, device=device)
        passes = torch.zeros(rows, dtype=torch.long, device=device)
        return cls(ids, ids.bool(), nowhere, ids.clone(), passes)

    def some(self, rows: Tensor) -> SearchResult:
        """A copy of ``rows`` [k], without what others they have."""
        ids, verified, distances = self.ids[rows], self.verified[rows], self.distances[rows]
        return SearchResult(ids, verified, distances, self.tried[rows], self.passes[rows])

    def put(self, rows: Tensor, part: SearchResult) -> None:
        """Replace ``rows`` [k]; other tokens of theirs are added."""
        self.ids[rows], self.verified[rows] = part.ids, part.verified
        self.distances[rows], self.tried[rows] = part.distances, part.tried
        self.passes[rows] = part.passes
        for (row, place), tokens in part.others.items():
            self.others[int(rows[row]), place] = tokens

    def forget(self, rows: Tensor | slice, place: int) -> None:
        """Know nothing of the tokens of ``rows`` at ``place``."""
        self.verified[rows, place], self.distances[rows, place] = False, torch.inf


Tell = Callable[[int, SearchResult], None]
"""Called after each position, or pass, with their number so far and the result so far."""


def exhaustive(
    subject: Subject, target: Target, goal: Tensor, tell: Tell | None = None
) -> SearchResult:
    """Try the whole vocabulary at every position: the slow reference method."""
    return _search(subject, target, goal, None, tell)


def ranked(
    subject: Subject, target: Target, goal: Tensor, tell: Tell | None = None
) -> SearchResult:
    """Rank, try a few tokens, and try all where none of them is verified."""
    began = time.perf_counter()
    target, goal = without_rotation(subject, target, goal.to(subject.device))
    linear = linear_map(subject, target, goal.shape[1])
    took = time.perf_counter() - began
    result = _search(subject, target, goal, linear, tell)
    result.set_up, result.set_up_seconds = linear.states, took
    return result


def _search(
    subject: Subject, target: Target, goal: Tensor, linear: LinearMap | None, tell: Tell | None
) -> SearchResult:
    """Search position by position, each after the tokens found before it."""
    rows, n, _ = goal.shape
    result = SearchResult.blank(rows, n, subject.device)
    result.exhaustive = linear is None
    prefixes = Prefixes(subject, target, rows)
    for place in range(n):
        search_place(result, prefixes, goal[:, place].to(subject.device), linear)
        prefixes.append(result.ids[:, place])
        if tell is not None:
            tell(place + 1, result)
    result.passes += prefixes.passes
    return result


def search_place(
    result: SearchResult,
    prefixes: Prefixes,
    goals: Tensor,
    linear: LinearMap | None,
    shift: Tensor | None = None,
) -> None:
    """Find the token after each of ``prefixes``, whose states are ``goals`` [rows, f].

    ``linear`` ranks the tokens, and is off by ``shift`` [rows, f]; without it all are tried.
    """
    everyone = torch.arange(len(goals), device=goals.device)
    rest = _search_place(result, prefixes, goals, linear, everyone, shift)
    if len(rest) and prefixes.misled(result.ids[:, len(prefixes)]):
        _search_place(result, prefixes, goals, linear, rest)


def _search_place(
    result: SearchResult,
    prefixes: Prefixes,
    goals: Tensor,
    linear: LinearMap | None,
    open_: Tensor,
    shift: Tensor | None = None,
) -> Tensor:
    """The same for rows ``open_``; return those without a verified token."""
    subject, place, close = prefixes.subject, len(prefixes), accepted(prefixes.subject)
    tried = torch.empty(len(open_), 0, dtype=torch.long, device=open_.device)
    for upto in _rounds(subject.vocabulary, linear):
        goal = goals[open_]
        tokens = _next(subject, linear, goal, place, tried, upto, shift)
        distances, residual = _try(prefixes, tokens, open_, goal, linear)
        _note(result, tokens, distances, open_, place, close)
        # Equal tokens have adjacent ranks: the round may have ended among them.
        still = ~result.verified[open_, place] | (distances[:, -1] <= close)
        open_, tried = open_[still], torch.cat([tried, tokens], dim=1)[still]
        shift = None if residual is None else residual[still]
        if not len(open_):
            break
    return open_[~result.verified[open_, place]]


def _rounds(vocabulary: int, linear: LinearMap | None) -> tuple[int, ...]:
    """The number of candidates tried after each round."""
    if linear is None:
        return (vocabulary,)
    return (*(size for size in ROUNDS if size < vocabulary), vocabulary)


def _next(
    subject: Subject,
    linear: LinearMap | None,
    goal: Tensor,
    place: int,
    tried: Tensor,
    upto: int,
    shift: Tensor | None,
) -> Tensor:
    """The candidates of a round: [rows, upto - tried], likeliest first."""
    if linear is None:
        return torch.arange(upto, device=goal.device).expand(len(goal), -1)
    misses = linear.misses(goal, place, shift).scatter(1, tried, torch.inf)
    return misses.topk(upto - tried.shape[1], largest=False).indices


def _try(
    prefixes: Prefixes, tokens: Tensor, rows: Tensor, goal: Tensor, linear: LinearMap | None
) -> tuple[Tensor, Tensor | None]:
    """The relative distances of candidates' states [rows, C], and the map's mean residual."""
    distances, residuals = [], []
    for first, states in prefixes.states(tokens, rows):
        off = relative(states, goal[:, None])
        distances.append(off)
        if linear is not None and first == 0:
            some = tokens[:, : states.shape[1]]
            nearest = off.topk(min(LOCAL, off.shape[1]), largest=False).indices
            rest = linear.features(states) - linear.expected(some, len(prefixes))
            residuals.append(rest.gather(1, nearest[..., None].expand(-1, -1, rest.shape[2])))
    residual = residuals[0].mean(1) if residuals else None
    return torch.cat(distances, dim=1), residual


def _note(
    result: SearchResult, tokens: Tensor, distances: Tensor, rows: Tensor, place: int, close: float
) -> None:
    """Keep the nearest candidate of each row, and all that count as equal to the target."""
    verified = result.verified[rows, place].long()
    equal = distances <= close
    for row in ((equal.sum(1) + verified > 1) & equal.any(1)).nonzero()[:, 0].tolist():
        where = int(rows[row]), place
        before = [int(result.ids[where])] * int(verified[row]) + result.others.get(where, [])
        result.others[where] = sorted({*before, *tokens[row][equal[row]].tolist()})
    least, at = distances.min(1)
    better = least < result.distances[rows, place]
    best = tokens.gather(1, at[:, None])[:, 0]
    result.ids[rows[better], place] = best[better]
    result.distances[rows[better], place] = least[better]
    result.tried[rows, place] += tokens.shape[1]
    result.verified[rows, place] = result.distances[rows, place] <= close
