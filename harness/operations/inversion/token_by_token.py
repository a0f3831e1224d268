"""Exact inversion of a causal model, token by token, every answer verified by running it.

`exhaustive` tries every token of the vocabulary.  `exact` ranks them first, and rarely has to try
more than a few.  The ranking is by a linear map: a regression of the states of a sample of tokens,
after some prompt, on their embeddings, once for each model and depth.  A Gauss–Newton step from
the mean embedding would use the same Jacobian; this one takes d states instead of d backward
passes for every position.  The contribution of other prompts is assumed to be the same for every
token, and is estimated from the tokens that were tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from assay.harness.models.memo import memo
from assay.harness.models.subject import Subject
from assay.harness.operations.inversion.candidates import Prefixes, accepted
from assay.harness.operations.inversion.target import Target, embedded
from assay.harness.operations.likeliest import in_chunks

ROUNDS = (8, 64, 512)
"""The number of candidates tried after each round of `exact`; the last round tries all."""

SAMPLE = 4
"""Tokens in the ranking's sample for each dimension of the embedding."""

TYPICAL = 8
"""Tokens in the prompt before the sample."""

LOCAL = 2
"""How many of the nearest tried tokens estimate the prompt's contribution to a state."""

EPSILON = torch.finfo(torch.float64).tiny


@dataclass
class SearchResult:
    """The result of a search for outputs [rows, n, features].

    ``ids`` [rows, n]; ``verified`` [rows, n] (bool), whether the token's own state is the goal's;
    ``distances`` [rows, n], its relative distance; ``tried`` [rows, n], candidates whose states
    were computed; ``others``, by (row, place) all verified tokens, where there are several;
    ``set_up``, states computed before the search, and ``set_up_seconds``, the time for them in
    this call; ``exhaustive``, whether all tokens were tried, so that ``others`` is complete.
    """

    ids: Tensor
    verified: Tensor
    distances: Tensor
    tried: Tensor
    others: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    set_up: int = 0
    exhaustive: bool = False
    set_up_seconds: float = 0.0


Tell = Callable[[int, SearchResult], None]
"""Called after each position with its index and the result so far."""


def exhaustive(
    subject: Subject, target: Target, goal: Tensor, tell: Tell | None = None
) -> SearchResult:
    """Try the whole vocabulary at every position: the slow reference method."""
    return _search(subject, target, goal, None, tell)


def exact(
    subject: Subject, target: Target, goal: Tensor, tell: Tell | None = None
) -> SearchResult:
    """Rank, try a few tokens, and try all where none of them is verified."""
    began = time.perf_counter()
    ranked = ranking(subject, target)
    took = time.perf_counter() - began
    result = _search(subject, target, goal, ranked, tell)
    result.set_up_seconds = took
    return result


def _search(
    subject: Subject,
    target: Target,
    goal: Tensor,
    ranking: Ranking | None,
    tell: Tell | None = None,
) -> SearchResult:
    """Search position by position, each after the tokens found before it."""
    rows, n, _ = goal.shape
    device = subject.device
    result = SearchResult(
        torch.zeros(rows, n, dtype=torch.long, device=device),
        torch.zeros(rows, n, dtype=torch.bool, device=device),
        torch.full((rows, n), torch.inf, dtype=torch.float64, device=device),
        torch.zeros(rows, n, dtype=torch.long, device=device),
        set_up=0 if ranking is None else ranking.set_up,
        exhaustive=ranking is None,
    )
    prefixes = Prefixes(subject, target, rows)
    for place in range(n):
        goals, everyone = goal[:, place].to(device), torch.arange(rows, device=device)
        missed = _search_place(result, prefixes, goals, ranking, everyone)
        if len(missed) and prefixes.misled(result.ids[:, place]):
            _search_place(result, prefixes, goals, ranking, missed)
        prefixes.append(result.ids[:, place])
        if tell is not None:
            tell(place, result)
    return result


def _search_place(
    result: SearchResult, prefixes: Prefixes, goals: Tensor, ranking: Ranking | None, open_: Tensor
) -> Tensor:
    """Find the next token of rows ``open_`` for ``goals`` [rows, f]; return rows without one."""
    subject, place, close = prefixes.subject, len(prefixes), accepted(prefixes.subject)
    tried = torch.empty(len(open_), 0, dtype=torch.long, device=open_.device)
    shift: Tensor | None = None
    for upto in _rounds(subject.vocabulary, ranking):
        goal = goals[open_]
        tokens = _next(subject, ranking, goal, place, tried, upto, shift)
        distances, residual = _try(prefixes, tokens, open_, goal, ranking)
        _note(result, tokens, distances, open_, place, close)
        # Equal tokens have adjacent ranks: the round may have ended among them.
        still = ~result.verified[open_, place] | (distances[:, -1] <= close)
        open_, tried = open_[still], torch.cat([tried, tokens], dim=1)[still]
        shift = None if residual is None else residual[still]
        if not len(open_):
            break
    return open_[~result.verified[open_, place]]


def _rounds(vocabulary: int, ranking: Ranking | None) -> tuple[int, ...]:
    """The number of candidates tried after each round."""
    if ranking is None:
        return (vocabulary,)
    return (*(size for size in ROUNDS if size < vocabulary), vocabulary)


def _next(
    subject: Subject,
    ranking: Ranking | None,
    goal: Tensor,
    place: int,
    tried: Tensor,
    upto: int,
    shift: Tensor | None,
) -> Tensor:
    """The candidates of a round: [rows, upto - tried], likeliest first."""
    if ranking is None:
        return torch.arange(upto, device=goal.device).expand(len(goal), -1)
    misses = ranking.misses(goal, place, shift).scatter(1, tried, torch.inf)
    return misses.topk(upto - tried.shape[1], largest=False).indices


def _try(
    prefixes: Prefixes, tokens: Tensor, rows: Tensor, goal: Tensor, ranking: Ranking | None
) -> tuple[Tensor, Tensor | None]:
    """The relative distances of candidates' states [rows, C], and the ranking's mean residual."""
    distances, residuals = [], []
    size = torch.linalg.vector_norm(goal.double(), dim=-1).clamp_min(EPSILON)
    for first, states in prefixes.states(tokens, rows):
        off = torch.linalg.vector_norm(states.double() - goal[:, None].double(), dim=-1)
        off = off.nan_to_num(nan=torch.inf, posinf=torch.inf)
        distances.append(off / size[:, None])
        if ranking is not None and first == 0:
            some = tokens[:, : states.shape[1]]
            nearest = off.topk(min(LOCAL, off.shape[1]), largest=False).indices
            missed = states - ranking.expected(some, len(prefixes))
            residuals.append(missed.gather(1, nearest[..., None].expand(-1, -1, states.shape[2])))
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


@dataclass
class Ranking:
    """The expected states of all tokens: ``first`` [V, f] without a prompt, ``later`` after one.

    ``set_up`` is the number of states computed for it.
    """

    first: Tensor
    later: Tensor
    set_up: int

    def expected(self, tokens: Tensor, place: int) -> Tensor:
        """The expected states of ``tokens`` [...] at ``place``: [..., f]."""
        return (self.later if place else self.first)[tokens]

    def misses(self, goal: Tensor, place: int, shift: Tensor | None) -> Tensor:
        """The expected squared distance of each token from ``goal`` [rows, f]: [rows, V].

        Up to a constant of the row.  ``shift`` [rows, f] is added to the expected states.
        """
        table, sizes = (
            (self.later, self._later_sizes) if place else (self.first, self._first_sizes)
        )
        goal = (goal if shift is None else goal - shift).to(table)
        off = sizes - 2 * goal @ table.T
        return off.nan_to_num(nan=torch.finfo(off.dtype).max)

    @cached_property
    def _first_sizes(self) -> Tensor:
        return _squares(self.first)

    @cached_property
    def _later_sizes(self) -> Tensor:
        return _squares(self.later)


def _squares(table: Tensor) -> Tensor:
    """The squared length of each row of ``table`` [V, f]: [V]."""
    chunks = in_chunks(table, table.dtype)
    return torch.cat([rows.square().sum(1) for _, rows in chunks])


def ranking(subject: Subject, target: Target) -> Ranking:
    """The ranking for ``target``, computed once and cached with the subject."""
    rankings = _rankings(subject)
    if target not in rankings:
        rankings[target] = _ranking(subject, target)
    return rankings[target]


@memo
def _rankings(subject: Subject) -> dict[Target, Ranking]:
    return {}


def _ranking(subject: Subject, target: Target) -> Ranking:
    table = embedded(subject)
    vocabulary, width = table.shape
    generator = torch.Generator().manual_seed(0)
    count = min(vocabulary, SAMPLE * width)
    sample = torch.randperm(vocabulary, generator=generator)[:count].to(table.device)
    prompt = torch.randint(vocabulary, (TYPICAL,), generator=generator).to(table.device)
    room = (subject.context or TYPICAL + 1) - 1
    expected = []
    for prefix in (prompt[:0], prompt[:room]):
        prefixes = Prefixes(subject, target, 1)
        for token in subject.content(prefix):
            prefixes.append(token[None])
        states = torch.cat([part for _, part in prefixes.states(sample[None])], dim=1)[0].double()
        # In 16 bits some states may have overflowed.
        fine = states.isfinite().all(1) & table[sample].isfinite().all(1)
        states, tokens = states[fine], table[sample[fine]].double()
        mean, middle = states.mean(0), tokens.mean(0)
        linear = torch.linalg.lstsq(tokens - middle, states - mean).solution
        chunks = in_chunks(table, torch.float64)
        expected.append(
            torch.cat([(mean + (rows - middle) @ linear).float() for _, rows in chunks])
        )
    return Ranking(expected[0], expected[1], 2 * count)
