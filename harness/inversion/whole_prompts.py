"""Exact inversion of a causal model by whole prompts, every answer verified by running it.

All tokens are guessed at once, each from its own state, by a linear map.  A pass over the guess
verifies its beginning: up to the first wrong token its states are those of the target.  Behind
it, the pass says by how much the map was off at every place, and the rest is guessed again.  A
place where that does not help is searched token by token.  So every pass verifies one more token
at least, or tries others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from assay.harness.inversion import branching, graphs
from assay.harness.inversion.candidates import Prefixes, TimeUp, accepted, relative
from assay.harness.inversion.forward_map import forward_map
from assay.harness.inversion.linear import LinearMap
from assay.harness.inversion.rotated_keys import without_rotation
from assay.harness.inversion.set_up import linear_map
from assay.harness.inversion.target import Target
from assay.harness.inversion.token_by_token import ROUNDS, SearchResult, Tell, search_place
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject

POOR = 0.9
"""The share of held-out tokens that the linear map ranks first, below which the forward map does,
and unsure places are branched."""

MANY = 16384
"""Tokens of a vocabulary through which a search token by token is quick."""

TRIES = 2
"""Guesses at a place, before it is searched."""

UNUSUAL = 2.0
"""The multiple of the usual distance behind a wrong token, beyond which a token may be wrong."""

LEAD = 0.5
"""A token is replaced there if its state is nearer by less than this (`LinearMap.lead`)."""

SAFE = 4.0
"""The multiple of `accepted` within which the predicted state of another token is compared."""

REOPENED = 2
"""How often the places after a better token are verified together; then they are searched."""

TOKENS_AT_ONCE = 4096
"""Tokens in one pass."""


def exact(
    subject: Subject,
    target: Target,
    goal: Tensor,
    tell: Tell | None = None,
    lengths: Sequence[int] | None = None,
    keep: Path | None = None,
    limit: float = math.inf,
) -> SearchResult:
    """The prompts with the outputs ``goal`` [rows, n, features], of ``lengths`` if not of n.

    The folder ``keep`` keeps the linear map for other processes.  The search ends ``limit``
    seconds after its set-up, with what is verified by then.
    """
    began = time.perf_counter()
    target, goal = without_rotation(subject, target, goal.to(subject.device))
    linear = linear_map(subject, target, goal.shape[1], keep)
    took = time.perf_counter() - began
    search = _Search(subject, target, goal, linear, lengths, time.perf_counter() + limit)
    try:
        search.run(tell or (lambda passes, result: None), keep)
    except TimeUp:
        search.result.ended = True
    search.list_equal_embeddings()
    search.result.set_up += linear.states
    search.result.set_up_seconds += took
    return search.result


@dataclass(frozen=True)
class _Run:
    """Guesses ``ids`` [k, n] that were run: their ``states`` and the ``goal`` [k, n, F], how far
    ``off`` they are, and which places are ``later`` than the first open one [k, n].
    """

    ids: Tensor
    states: Tensor
    goal: Tensor
    off: Tensor
    later: Tensor


class _Search:
    """The rows of a search: ``result.ids`` are their present guesses.

    ``done`` [rows, n] are tokens that are known, or that no search found: those before some
    place, and what lies beyond a prompt's end, which counts as verified.  ``compared`` are those
    that need no further comparison with others.
    """

    def __init__(
        self,
        subject: Subject,
        target: Target,
        goal: Tensor,
        linear: LinearMap,
        lengths: Sequence[int] | None,
        until: float,
    ) -> None:
        self.subject, self.target, self.goal, self.map = subject, target, goal, linear
        self.until = until
        rows, n, _ = goal.shape
        self.close = accepted(subject)
        self.result = SearchResult.blank(rows, n, goal.device)
        ends = torch.tensor(lengths or [n] * rows, device=goal.device)
        self.final = torch.arange(n, device=goal.device) >= ends[:, None]
        self.beyond, self.compared = self.final.clone(), self.final.clone()
        self.result.verified |= self.beyond
        self.result.distances[self.beyond] = 0
        self.reopened = torch.zeros(rows, dtype=torch.long, device=goal.device)
        self.tries = torch.zeros(rows, dtype=torch.long, device=goal.device)
        # Tokens that were tried at a row's first open place, after what is settled before it.
        self.refuted = torch.zeros(rows, TRIES, dtype=torch.long, device=goal.device)
        # Those that were replaced at places behind it, and how many were.
        self.doubted = torch.zeros(rows, n, TRIES, dtype=torch.long, device=goal.device)
        self.doubts = torch.zeros(rows, n, dtype=torch.long, device=goal.device)

    def run(self, tell: Tell, keep: Path | None) -> None:
        """Guess, and pass over the guesses until every token is settled."""
        everyone = torch.arange(len(self.goal), device=self.goal.device)
        self._guess(everyone, self.map.likeliest(self.goal))
        tell(0, self.result)
        poor = self.map.share < POOR and self.subject.vocabulary > MANY
        if poor and self._prefixes(1).branching(self.goal.shape[1]):
            self._branch(tell, keep)
        while True:
            while len(rows := (~self.final.all(1)).nonzero()[:, 0]):
                self._pass(rows)
                tell(int(self.result.passes.max()), self.result)
            if not self._compare():
                return

    def _branch(self, tell: Tell, keep: Path | None) -> None:
        """Settle the beginnings of prompts by branches and a map that knows what comes before."""
        began = time.perf_counter()
        linear = forward_map(self.subject, self.target, keep)
        self.result.set_up, self.result.set_up_seconds = linear.states, time.perf_counter() - began
        self.until += self.result.set_up_seconds
        for row, goal in enumerate(self.goal):
            length = int((~self.beyond[row]).sum())
            say = partial(tell, int(self.result.passes.max()), self.result)
            done = branching.search(
                *(self.subject, self.target, goal, row, length, linear, self.result, say),
                until=self.until,
            )
            self.final[row, :done] = True

    def _pass(self, rows: Tensor) -> None:
        """Run the guesses of ``rows`` [k], settle what they verify, and guess the rest again."""
        result, open_, before = self.result, ~self.final[rows], self._places(rows)
        goal, guess = self.goal[rows], result.ids[rows]
        states = self._states(guess)
        off = distance(states, goal)
        right = ((off <= self.close) | ~open_).long().cumprod(1).bool()
        result.passes[rows] += 1
        result.tried[rows] += open_
        result.distances[rows] = torch.where(open_, off, result.distances[rows])
        result.verified[rows] = torch.where(open_, right, result.verified[rows])
        self.final[rows] |= right
        places = self._places(rows)
        self.tries[rows] = torch.where(places == before, self.tries[rows] + 1, 1)
        if not len(left := (~self.final[rows].all(1)).nonzero()[:, 0]):
            return
        rows, places, guess = rows[left], places[left], guess[left]
        states, goal = states[left], goal[left]
        likelier = self.map.likelier(guess, states, goal)
        at = torch.arange(goal.shape[1], device=goal.device)
        later = ~self.final[rows] & (at > places[:, None])
        self._doubt(rows, likelier, _Run(guess, states, goal, off[left], later))
        self._guess(rows, likelier)
        tried = _at(guess, places)
        self._refute(rows, tried)
        stuck = self.tries[rows] >= TRIES
        if len(again := (~stuck).nonzero()[:, 0]):
            where, at = rows[again], places[again]
            ends = _at(states[again], at), _at(goal[again], at)
            refuted = self.refuted[where]
            result.ids[where, at] = self.map.instead(tried[again], *ends, at > 0, refuted)
        for place in places[stuck].unique().tolist():
            here = stuck & (places == place)
            shift = self.map.features(states[here, place]) - self.map.expected(tried[here], place)
            self._search(rows[here], place, shift)

    def _doubt(self, rows: Tensor, likelier: Tensor, run: _Run) -> None:
        """Replace tokens in ``likelier`` [k, n] against which the ``run`` of them speaks.

        Behind a row's first open place no state is that of the target, as a token before is wrong.
        The map alone would guess many a wrong token again, where it is off by much.  Its state is
        further off than most, and in the direction of another token.
        """
        usual = run.off.masked_fill(~run.later, torch.nan).nanmedian(1).values
        unusual = run.later & (likelier == run.ids) & (run.off > UNUSUAL * usual[:, None])
        row, place = unusual.nonzero(as_tuple=True)
        if not len(row):
            return
        where, tokens = rows[row], run.ids[row, place]
        ends = run.states[row, place], run.goal[row, place]
        doubted, count = self.doubted[where, place], self.doubts[where, place]
        doubted[count == 0] = tokens[count == 0, None]
        doubted[torch.arange(len(row), device=row.device), count % TRIES] = tokens
        other = self.map.instead(tokens, *ends, place > 0, doubted)
        replaced = self.map.lead(tokens, other, *ends) < LEAD
        likelier[row, place] = torch.where(replaced, other, tokens)
        self.doubted[where, place], self.doubts[where, place] = doubted, count + replaced

    def _refute(self, rows: Tensor, tokens: Tensor) -> None:
        """Note that ``tokens`` [k] were tried at the first open place of ``rows`` [k]."""
        first = self.tries[rows] <= 1
        self.refuted[rows[first]] = tokens[first, None]
        self.refuted[rows, (self.tries[rows] - 1) % TRIES] = tokens

    def _places(self, rows: Tensor) -> Tensor:
        """The first place of each of ``rows`` that is not settled."""
        return self.final[rows].long().cumprod(1).sum(1)

    def _states(self, ids: Tensor) -> Tensor:
        """The target of prompts ``ids`` [k, n], some at a time: [k, n, f]."""
        if time.perf_counter() > self.until:
            raise TimeUp
        some = ids.split(max(1, TOKENS_AT_ONCE // ids.shape[1]))
        passes = graphs.passes(self.subject)
        return torch.cat([passes.output(self.target, each) for each in some])

    def _guess(self, rows: Tensor, ids: Tensor) -> None:
        """Guess the open tokens of ``rows`` [k] from ``ids`` [k, n]."""
        self.result.ids[rows] = torch.where(self.final[rows], self.result.ids[rows], ids)

    def _search(
        self,
        rows: Tensor,
        place: int,
        shift: Tensor | None = None,
        forgotten: Tensor | slice = slice(None),
    ) -> None:
        """Find one token of ``rows`` [k], by their first ``place`` tokens; the place is settled.

        The map is off by ``shift`` [k, f] there.  Those not ``forgotten`` [k] keep their token
        unless another is nearer.
        """
        prefixes = self._prefixes(len(rows))
        prefixes.extend(self.result.ids[rows, :place])
        part = self.result.some(rows)
        part.forget(forgotten, place)
        search_place(part, prefixes, self.goal[rows, place], self.map, shift)
        part.passes += prefixes.passes
        self.result.put(rows, part)
        self.final[rows, place] = True
        self.tries[rows] = 0

    def _prefixes(self, rows: int) -> Prefixes:
        return Prefixes(self.subject, self.target, rows, until=self.until)

    def _compare(self) -> bool:
        """List the tokens that are as good as those found, and choose the best of them.

        Wherever the map predicts nearly the same state for another token.  Where another token is
        better, what comes after it in that row is open again; returns whether anything is.
        """
        n, before = self.goal.shape[1], self.result.ids.clone()
        sizes = torch.linalg.vector_norm(self.goal.double(), dim=-1)
        near = self.map.near(self.result.ids, SAFE * self.close * sizes)
        near &= self.result.verified & ~self.beyond & ~self.compared
        rows = near.any(1).nonzero()[:, 0]
        for some in filter(len, rows.split(max(1, TOKENS_AT_ONCE // n))):
            part, prefixes = self.result.some(some), self._prefixes(len(some))
            near[some] = undecided(prefixes, self.map, self.goal[some], part, near[some])
            self.result.put(some, part)
        self.compared |= ~near
        stale = torch.zeros_like(near[:, 0])  # rows whose states are those of other tokens
        for place in range(n) if bool(near.any()) else ():
            rows = near[:, place].nonzero()[:, 0]
            if len(rows):
                self._search(rows, place, forgotten=stale[rows])
                self.compared[rows, place] = True
                other = rows[self.result.ids[rows, place] != before[rows, place]]
                again = self.reopened[other] < REOPENED
                self._reopen(other[again], place + 1)
                near[:, place + 1 :] &= self.final[:, place + 1 :]
                stale[other[~again]] = True
                near[other[~again], place + 1 :] = ~self.beyond[other[~again], place + 1 :]
        return not bool(self.final.all())

    def list_equal_embeddings(self) -> None:
        """Add to every verified token, and to those listed with it, all with equal embeddings."""
        same, others = self.map.same, self.result.others
        several = torch.bincount(same, minlength=len(same))[same] > 1
        listed = {where for where, tokens in others.items() if bool(several[tokens].any())}
        open_ = several[self.result.ids] & self.result.verified & ~self.beyond
        for row, place in listed | {*map(tuple, open_.nonzero().tolist())}:
            tokens = others.get((row, place), [int(self.result.ids[row, place])])
            others[row, place] = torch.isin(same, same[tokens]).nonzero()[:, 0].tolist()

    def _reopen(self, rows: Tensor, place: int) -> None:
        """Verify ``rows`` [k] again from a ``place`` on: a token before it is another now."""
        self.reopened[rows] += 1
        self.final[rows, place:] = self.beyond[rows, place:]
        self.result.verified[rows, place:] = self.beyond[rows, place:]
        self.compared[rows, place:] = False
        again, others = {*rows.tolist()}, self.result.others
        for row, where in [*others]:
            if row in again and where >= place:
                del others[row, where]


def _at(values: Tensor, places: Tensor) -> Tensor:
    """``values`` [k, n, ...] at one place for each row [k]: [k, ...]."""
    return values[torch.arange(len(values), device=values.device), places]


def undecided(
    prefixes: Prefixes, linear: LinearMap, goal: Tensor, result: SearchResult, near: Tensor
) -> Tensor:
    """Try rivals at the places ``near`` [rows, n]; return those that have to be searched.

    ``prefixes`` are empty, and ``result`` has the tokens for ``goal`` [rows, n, F].  Rivals that
    give the goal as well are listed in ``result.others``, and a nearer one replaces the token.  A
    place has to be searched if there is a nearer one, if so many give the goal that there may be
    more, or if the branch of the token found does not give it; all of them, where the model's
    prompts cannot branch.
    """
    if not prefixes.branching(goal.shape[1]) or (states := prefixes.extend(result.ids)) is None:
        return near
    shift = linear.features(goal - states)
    close, open_, search = accepted(prefixes.subject), near.clone(), torch.zeros_like(near)
    equals: list[tuple[Tensor, Tensor]] = []
    for count in ROUNDS:  # of equal ones any may come first, so that each round tries all again
        places = open_.any(0).nonzero()[:, 0]
        if not len(places) or count >= prefixes.subject.vocabulary:
            break
        tokens = _rivals(linear, result.ids[:, places], places, count, shift[:, places])
        both = torch.cat([result.ids[:, places, None], tokens], dim=2)
        off = _off(prefixes, places, both, goal)
        own, others, here = off[..., 0], off[..., 1:], open_[:, places]
        result.tried[:, places] += here * tokens.shape[2]
        least, best = others.min(2)
        right = here & (own <= close)
        nearer = right & (least < torch.minimum(own, result.distances[:, places]))
        equal = (others <= close) & (right & ~nearer)[..., None]
        equals += [_listed(places, tokens, equal)]
        best = tokens.gather(2, best[..., None])[..., 0]
        result.ids[:, places] = torch.where(nearer, best, result.ids[:, places])
        result.distances[:, places] = torch.where(nearer, least, result.distances[:, places])
        search[:, places] |= here & (nearer | ~right)
        # The farthest of them gives the goal as well: further ones may.
        open_[:, places] = equal[..., -1]
        open_ &= ~search
    result.passes += prefixes.passes
    search |= open_
    _note(result, equals, ~search)
    return search


def _rivals(linear: LinearMap, ids: Tensor, places: Tensor, count: int, shift: Tensor) -> Tensor:
    """The ``count`` likeliest rivals of ``ids`` [k, P] at ``places`` [P]: [k, P, count].

    The goal differs from their states by ``shift`` [k, P, f].
    """
    rivals = ids.new_empty(*ids.shape, count)
    for place, here in enumerate((places == 0, places > 0)):
        if bool(here.any()):
            own, off = ids[:, here].flatten(), shift[:, here].flatten(0, 1)
            others = linear.others(own, place, count, off, distinct=True)
            rivals[:, here] = others.reshape(len(ids), -1, count)
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


def _note(result: SearchResult, equals: list[tuple[Tensor, Tensor]], decided: Tensor) -> None:
    """List what is equal at places that are ``decided`` [rows, n]."""
    rivals: dict[tuple[int, int], set[int]] = {}
    for where, tokens in equals:
        for (row, place), token in zip(where.tolist(), tokens.tolist(), strict=True):
            if bool(decided[row, place]):
                rivals.setdefault((row, place), {int(result.ids[row, place])}).add(token)
    result.others |= {where: sorted(tokens) for where, tokens in rivals.items()}
