"""Whole prompts of trained models: likely tokens of all unsure places, tried in one pass.

All places are guessed at once by the forward map and by the model's own distribution of the next
token, which the targets give: the blocks behind them are run on them.  One pass runs the
guess, and the likeliest other tokens of unsure places as branches of it.  What was tried corrects
the map at its place; places behind a wrong token are corrected too, since their states hardly
depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from assay.harness.inversion.candidates import ACCEPTED, Prefixes, accepted, relative
from assay.harness.inversion.forward_map import ForwardMap
from assay.harness.inversion.next_token import Rest, own_distribution
from assay.harness.inversion.regression import Part
from assay.harness.inversion.set_up import reduced
from assay.harness.inversion.target import Target, embedded
from assay.harness.inversion.token_by_token import SearchResult
from assay.harness.models import capabilities
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.operations.equal_rows import first_equal

EVIDENCE = 0.3
"""The weight of a feature.  Residuals are not normal: all of a place's are large, or all small.
As in Student's distribution the likelihood falls with the logarithm of the squared distance."""

LISTED, MOST = 16, 8
"""Tokens among which a place's probability is shared, and the most others tried at a place."""

REACH, WORTH = 0.7, 0.08
"""Least probabilities: that all before a place is right, for its guess to be run; and that times
the probability of another token, for that token to be tried."""

ROUNDS = (6, 6, 12, 24, 24, 48, 48, 96, 192, 384, 768, 1536)
"""Tokens tried in each round at the first place that is open; after them it is given up."""

ENOUGH = 5
"""Tokens tried at a place from which what the map is off by there is regressed on them.  Of 33
right tokens of Qwen2.5 that about 22 tries had not found, 19 rank among the first ten by that, and
seven by their scores."""

NEARLY = 0.01
"""The relative distance up to which a token may be right, as rounding may change more there: a
batch of 32 prompts in place of one changed a state of Qwen2.5 by 0.0016."""

CHANGED, CHANGES = 32.0, 12
"""Standard deviation of relative changes of embeddings, in units of the dtype's rounding, and how
many there are at most; one is mostly enough.  Four of them changed a state of Qwen2.5 by less than
a fourth of what a batch of 32 prompts in place of one did, and twelve by five sixths."""

BEYOND = 100.0
"""The multiple of what one change does beyond which no other change is tried."""

SURE, DOUBTED = 0.25, 3
"""In 16 bits: the share of what is accepted within which no other token is tried, and the rounds
after which the nearest one is taken.  Right tokens of Qwen2.5 are off by 0.02 in bfloat16, where
0.12 is accepted, and wrong ones by 0.05 and more."""

STEPS, LEAST = 20, 0.02
"""Iterations of expectation maximisation, and the least share of a distribution."""

FREQUENT = 100
"""Ids of byte-pair encodings are in the order of their merges, so roughly by frequency: by Zipf's
law that of an id is taken to be as 1 / (id + this)."""


def search(
    subject: Subject,
    target: Target,
    goal: Tensor,
    row: int,
    length: int,
    linear: ForwardMap,
    result: SearchResult,
    tell: Callable[[], None],
    until: float = math.inf,
) -> int:
    """Find the tokens of ``goal`` [n, F], up to ``length``, and write them to a ``row`` of
    ``result``; return how many of the first ones are verified.  Raises `TimeUp` after ``until``.
    """
    place = _Row(subject, target, goal[:length], linear, until)
    while place.done < length and place.can_go_on:
        place.step()
        result.ids[row, :length], result.distances[row, :length] = place.guess, place.off
        result.verified[row, :length] = torch.arange(length, device=goal.device) < place.done
        result.tried[row, :length] = place.tried
        result.passes[row] = place.prefixes.passes
        tell()
    return place.done


class _Row:
    """One prompt: ``guess`` [n], of which the first ``done`` tokens are verified."""

    def __init__(
        self,
        subject: Subject,
        target: Target,
        goal: Tensor,
        linear: ForwardMap,
        until: float = math.inf,
    ) -> None:
        self.subject, self.goal, self.map = subject, goal, linear
        self.wide, self.close = reduced(goal.float(), linear.basis), accepted(subject)
        self.prefixes = Prefixes(subject, target, 1, until=until)
        self.n, self.done, self.round = len(goal), 0, 0
        self.off = torch.full((self.n,), torch.inf, dtype=torch.float64, device=goal.device)
        self.tried = torch.zeros(self.n, dtype=torch.long, device=goal.device)
        # Of the first open place, after its true prefix: tokens, and their states.
        self.tokens, self.states = goal.new_empty(0, dtype=torch.long), goal.new_empty(0, 0)
        # The likelihoods [p, V] there by a regression of what each part is off by at them.
        self.here: Tensor | None = None
        # The last prompt that was run with changed embeddings, and its states by the change.
        self.prompt, self.changed = self.tokens, dict[int, Tensor]()
        # The most that changes of places have made, and how many there were.
        self.rounded = dict[int, tuple[float, int]]()
        self.parts = [linear.at(place, state) for place, state in enumerate(self.wide)]
        self.evidence = torch.stack([self._evidence(place) for place in range(self.n)])
        self.prior = self._prior(self.evidence, own_distribution(subject, target))
        self.spare = _spare(subject)
        self.scores = (-self.evidence - self.prior).masked_fill(self.spare, torch.inf)
        self.guess = self.scores.argmin(1)

    @property
    def can_go_on(self) -> bool:
        """Whether a further round may find the token of the first open place."""
        return self.round < len(ROUNDS)

    def step(self) -> None:
        """Run the guess and branches, settle what they verify, and guess the rest again."""
        first = place = self.done
        end, places, tokens = self._plan()
        held = self.prefixes.ids[0, :place]
        self.prefixes.crop(int((held == self.guess[: len(held)]).long().cumprod(0).sum()))
        begin = len(self.prefixes)  # a token that was a branch is yet to be run
        self.tried[begin:end] += 1
        states = self.prefixes.extend(self.guess[None, begin:end])
        assert states is not None  # these prefixes have a cache
        chain = states[0, place - begin :]
        tried = self.goal.new_empty(0, self.goal.shape[1])
        if len(tokens):
            parts = [p for _, p in self.prefixes.states_at(places, tokens[None])]
            tried = torch.cat(parts, 1)[0]
            self.tried += torch.bincount(places, minlength=self.n)
        off = relative(tried, self.goal[places]) if len(tokens) else tried[:, 0]
        self.off[place:end] = relative(chain, self.goal[place:end])
        while self.done < end and self._surely(self.guess[self.done], chain[self.done - place]):
            self.done += 1
        branched = False
        if self.done < end:
            here = (places == self.done).nonzero()[:, 0]
            best = here[off[here].argmin()] if len(here) else None
            if best is not None and self._surely(tokens[best], tried[best]):
                self.guess[self.done], self.off[self.done] = tokens[best], off[best]
                self.done, branched = self.done + 1, True
        if self.done > first:
            self.round, self.tokens, self.here = 0, self.tokens[:0], None
        if self.done == self.n:
            return
        for i in range(self.done, end):
            mine = (places == i).nonzero()[:, 0]
            ids = torch.cat([self.guess[i, None], tokens[mine]])
            states = torch.cat([chain[i - place, None], tried[mine]])
            fresh = i == self.done and not branched
            if fresh and len(self.tokens):
                ids, states = torch.cat([self.tokens, ids]), torch.cat([self.states, states])
            # The mean of both: what the map is off by is half of the place and half of the token.
            evidence = (self.evidence[i] + self._evidence(i, ids, states)) / 2
            self.scores[i] = (-evidence - self.prior[i]).masked_fill(self.spare, torch.inf)
            if fresh:
                self.tokens, self.states = ids, states
                self.scores[i, ids] = torch.inf
                if len(ids) >= ENOUGH:
                    self.here = self._by_part(i, ids, states, ENOUGH) + self.prior[i]
            self.guess[i] = self.scores[i].argmin()
        self.round += not branched
        if self.close > NEARLY and self.round == DOUBTED:
            self._settle_nearest()

    def _settle_nearest(self) -> None:
        """Settle the nearest token that was tried at the first open place, if it may be right."""
        off = relative(self.states, self.goal[self.done, None])
        if float(off[best := off.argmin()]) <= self.close:
            self.guess[self.done], self.off[self.done] = self.tokens[best], off[best]
            self.done, self.round, self.tokens = self.done + 1, 0, self.tokens[:0]
            self.here = None

    def _surely(self, token: Tensor, state: Tensor) -> bool:
        """Whether a token at the first open place is right, and no other need be tried.

        In 16 bits several tokens may be `accepted`, of which the nearest is right.
        """
        near = self.close > NEARLY and float(relative(state, self.goal[self.done])) > (
            self.close * SURE
        )
        return not near and self._right(token, state)

    def _right(self, token: Tensor, state: Tensor) -> bool:
        """Whether the ``state`` [F] of a ``token`` at the first open place is the target's.

        Where it is within `NEARLY`, the prompt is also run with slightly changed embeddings.  The
        states differ by as much as rounding may change one, which is more where massive
        activations nearly cancel.  Other tokens' states at that place are as near to each other,
        and rounding changes them by as much.
        """
        place, (goal, own) = self.done, (self.goal[self.done], state[None])
        off = float(relative(own, goal[None]))
        if off <= self.close or off > NEARLY:
            return off <= self.close
        prompt = torch.cat([self.guess[:place], token[None], self.guess[place + 1 :]])
        if not torch.equal(prompt[: place + 1], self.prompt[: place + 1]):
            self.prompt, self.changed = prompt, {}
        most, number = self.rounded.get(place, (0.0, 0))
        while ACCEPTED * most < off and number < (CHANGES if off < BEYOND * most else 1):
            if number not in self.changed:
                self.changed[number] = self._changed(number)
            most = max(most, float(relative(own, self.changed[number][place, None])))
            number += 1
        self.rounded[place] = most, number
        return off <= ACCEPTED * most <= ACCEPTED * NEARLY

    def _changed(self, number: int) -> Tensor:
        """The target of the present ``prompt`` with its embeddings changed by `CHANGED`: [n, F].

        Without a change, where the model takes no embeddings.
        """
        self.prefixes.passes += 1
        self.tried += 1
        subject, target, ids = self.subject, self.prefixes.target, self.prompt[None]
        if "inputs-embeds" not in capabilities.probe(subject):
            return target.output(subject, ids)[0]
        with torch.no_grad():
            rows = subject.input_embeddings(ids)
        draw = torch.Generator().manual_seed(number)
        noise = torch.randn(rows.shape, generator=draw).to(rows)
        changed = rows * (1 + CHANGED * torch.finfo(rows.dtype).eps * noise)
        return target.output(subject, embeddings=changed)[0]

    def _plan(self) -> tuple[int, Tensor, Tensor]:
        """The end of the guess that is run, and the ``places`` [b] and ids [b] of other tokens.

        What is run behind a wrong token verifies nothing, so all of it is likely to be reached.
        """
        scores = self.scores[self.done :]
        best = scores.topk(min(LISTED, scores.shape[1]), largest=False)
        share = torch.softmax(-best.values, 1)
        reached = torch.cat([torch.ones_like(share[:1, 0]), share[:-1, 0].cumprod(0)])
        end = self.done + int((reached >= REACH).sum())
        worth = reached[:, None] * share >= WORTH
        worth[:, 0] = worth[:, MOST + 1 :] = False
        worth[end - self.done :] = False
        if self.round:
            worth[0] = False
        places, which = worth.nonzero(as_tuple=True)
        tokens, places = best.indices[places, which], places + self.done
        if self.round:
            some = self._round(self.done, ROUNDS[self.round])
            tokens, places = torch.cat([some, tokens]), torch.cat([0 * some + self.done, places])
        return end, places, tokens

    def _round(self, place: int, count: int) -> Tensor:
        """Tokens of a further round: half by regressions of those tried here, by each part of the
        map; the others by their scores, and half as many each by the map alone, each of its parts,
        and by the model's distribution.

        After a massive state that distribution may be far off, and so may the corrected map.
        """
        scores, prior = self.scores[place].clone(), self.prior[place]
        scores[self.guess[place]] = torch.inf  # it is run as the guess
        others = [*self._by_part(place)]
        if bool((prior > prior.min()).any()):
            others.append(prior)
        left = scores.isfinite()
        count = min(count, int(left.sum()))
        here = [] if self.here is None else [*self.here]
        rankings = [(each, count // (2 * len(here))) for each in here]
        rest = count - sum(number for _, number in rankings)
        share = rest // (len(others) + 2)
        rankings.append((-scores, rest - len(others) * share))
        rankings += [(each, share) for each in others]
        some = scores.topk(0).indices
        for each, number in rankings:
            likeliest = each.masked_fill(~left, -torch.inf).topk(number).indices
            some = torch.cat([some, likeliest])
            left[likeliest] = False
        return some

    def _evidence(
        self, place: int, ids: Tensor | None = None, states: Tensor | None = None
    ) -> Tensor:
        """The logarithm of each token's likelihood [V] at a ``place``, up to a constant.

        After tokens ``ids`` [m] were tried there, with ``states`` [m, F], the map is taken to be
        off as at them.
        """
        each = self._by_part(place, ids, states).amax(0)
        return each - each.max()

    def _by_part(
        self,
        place: int,
        ids: Tensor | None = None,
        states: Tensor | None = None,
        least: int | None = None,
    ) -> Tensor:
        """The same by each of the map's parts, of which one is of that kind of state: [p, V].

        A part is off as at those tokens alone whose states are of its kind: by their mean or, if
        they are at ``least`` so many, by a regression.
        """
        parts, table = self.parts[place], self.map.table
        tokens = self.wide.new_empty(0, dtype=torch.long) if ids is None else ids
        wide = self.wide[:0] if states is None else reduced(states.float(), self.map.basis)
        left = [self._rest(part, place, wide) - part.part(table[tokens]) for part in parts]
        own = [
            self._likelihood(part, some.square().sum(1) / 2)
            for part, some in zip(parts, left, strict=True)
        ]
        kind, each = torch.stack(own).argmax(0), []
        for number, part in enumerate(parts):
            rest = self._rest(part, place, self.wide[place])
            mine = (kind == number) & left[number].isfinite().all(1)
            some, count = left[number][mine], int(mine.sum())
            if least is not None and count >= least:
                each.append(
                    self._likelihood(part, *part.corrected(table, tokens[mine], some, rest))
                )
                continue
            shift = some.mean(0) if count else 0.0
            each.append(self._likelihood(part, part.misses(table, (rest - shift)[None])[0]))
        return torch.stack(each)

    def _likelihood(self, part: Part, misses: Tensor, volume: Tensor | float = 0.0) -> Tensor:
        """Its logarithm, of states with half squared distances ``misses`` from a ``part``.

        In a metric whose volume has a logarithm that differs by ``volume`` from the part's.
        """
        misses = misses.clamp_min(torch.finfo(misses.dtype).tiny)
        return EVIDENCE * (part.density + volume - self.wide.shape[1] / 2 * misses.log())

    def _rest(self, part: Part, place: int, states: Tensor) -> Tensor:
        """What tokens add to ``states`` [..., F] at a ``place``, after the target before it."""
        if part is not self.map.later:
            return part.rest(states)
        return part.rest(states, part.centre if place == 1 else self.wide[place - 1])

    def _prior(self, evidence: Tensor, own: Callable[[Tensor], Tensor] | None) -> Tensor:
        """The logarithm of each token's probability before its state is looked at: [n, V].

        A mixture of the model's own distribution, of one of frequent tokens, and of an even one.
        Expectation maximisation estimates their shares in the prompt, which may be text or not.
        """
        prior = torch.zeros_like(evidence)
        if own is None or self.n < 2:
            return prior
        self.prefixes.passes += isinstance(own, Rest)
        frequent = -(torch.arange(evidence.shape[1], device=evidence.device) + FREQUENT).log()
        even = torch.zeros_like(frequent)
        each = [own(self.goal[:-1]), frequent.log_softmax(0), even.log_softmax(0)]
        fit = torch.stack([torch.logsumexp(some + evidence[1:], 1) for some in each])
        shares = torch.full_like(fit, 1 / len(each))
        for _ in range(STEPS):
            odds = torch.softmax(fit + shares.log(), 0)
            # Behind one token alone, models often expect less of text than of any.
            shares[:, 1:] = odds[:, 1:].mean(1, keepdim=True).clamp_min(LEAST)
            shares /= shares.sum(0)
        prior[1:] = -torch.inf
        for some, share in zip(each, shares.log(), strict=True):
            prior[1:] = torch.logaddexp(prior[1:], some + share[:, None])
        return prior


@memo
def _spare(subject: Subject) -> Tensor:
    """Which tokens have the embedding of one before them, and so its states: [V]."""
    first = first_equal(embedded(subject))
    return first != torch.arange(len(first), device=first.device)
