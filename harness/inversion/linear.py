"""A linear map from embeddings to states, which ranks all tokens for all states at once.

The state after token t at place i is taken to be m_i + (e_t - c) J + u.  Here e_t is the token's
embedding, c the mean embedding, and u, what the tokens before it add, has covariance C.  Tokens
are ranked by ½‖m_i + (e_t - c) J - state‖² in the metric of C⁻¹ (Mahalanobis' distance): one
product of the embedding matrix with one vector for each state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from assay.harness.models.machine.symmetric import decomposition
from assay.harness.operations.equal_rows import first_equal
from assay.harness.operations.likeliest import Scorer, in_chunks, scores_at_once, working_dtype

STRENGTHS = torch.logspace(-12, 1, 14, dtype=torch.float64)
"""Strengths of a ridge regression, relative to the mean eigenvalue; one is chosen by generalised
cross-validation (Golub, Heath and Wahba, 1979)."""

AXES = 8
"""Directions in which states spread most, by which near tokens are told apart first."""

FEW = 64
"""Tokens near in those directions, beyond which no distances are computed."""

ROUNDED = 1e-6
"""Rounding of a token's coordinate in one of them, relative to the largest."""

LEAST = 1e-10
"""The least variance of a feature relative to the largest: no feature decides alone."""


@dataclass(frozen=True)
class Slope:
    """J [d, f], J C⁻¹ [d, f], and ½‖(e_t - c) J‖² in the metric for each token [V]."""

    linear: Tensor
    weights: Tensor
    halves: Tensor

    @classmethod
    def of(cls, table: Tensor, centre: Tensor, linear: Tensor, factor: Tensor) -> Slope:
        """For J ``linear`` [d, f] and the Cholesky ``factor`` of C [f, f], both in float64."""
        half_way = torch.linalg.solve_triangular(factor, linear.T, upper=False)  # L⁻¹ Jᵀ
        weights = torch.linalg.solve_triangular(factor.T, half_way, upper=True).T
        wide = working_dtype(table)
        right, middle = half_way.T.to(wide), centre.to(wide)
        halves = torch.cat(
            [((rows - middle) @ right).square().sum(1) / 2 for _, rows in in_chunks(table, wide)]
        )
        return cls(linear.to(wide), weights.to(wide), halves)

    def scores(self, scorer: Scorer, parts: Tensor) -> Tensor:
        """½‖(e_t - c) J - part‖² for ``parts`` [m, f], less what all tokens share: [m, V]."""
        off = self.halves - scorer.scores(parts @ self.weights.T)
        return off.nan_to_num_(nan=torch.finfo(off.dtype).max)


def spread(table: Tensor, centre: Tensor, linear: Tensor) -> Tensor:
    """The coordinates of (e_t - c) J for all tokens in the directions in which J spreads most.

    For ``table`` [V, d] and ``linear`` [d, f]: [V, AXES], at most the distances between tokens.
    """
    _, vectors = decomposition(linear.T @ linear)
    axes = (linear @ vectors[:, -AXES:].flip(1)).to(working_dtype(table))
    middle = centre.to(axes)
    return torch.cat([(rows - middle) @ axes for _, rows in in_chunks(table, axes.dtype)])


@dataclass(frozen=True)
class LinearMap:
    """The map for one model and target; see above.

    ``table`` [V, d] embeds tokens, ``centre`` [d] is c, ``means`` [N, f] are m_i.  The first place
    has a slope of its own, ``first``.  Later places have two: ``guess``, where nothing is known
    of what the tokens before add, and ``again``, where another token's state is.  ``axes`` are the
    coordinates (`spread`) at the first place and later.  ``states`` were computed for the map, by
    which a ``share`` of held-out tokens ranked first.  Where ``basis`` [F, f] is given, a state is
    the product of the target's F features with it.
    """

    table: Tensor
    centre: Tensor
    means: Tensor
    first: Slope
    guess: Slope
    again: Slope
    axes: tuple[Tensor, Tensor]
    states: int
    share: float
    basis: Tensor | None = None

    def __len__(self) -> int:
        """The number of places whose mean is known."""
        return len(self.means)

    def features(self, states: Tensor) -> Tensor:
        """What the map is about in ``states`` [..., F] of the target: [..., f]."""
        wide = states.to(self.means)
        return wide if self.basis is None else wide @ self.basis

    def mean(self, n: int) -> Tensor:
        """m_i of the first ``n`` places, beyond those known the last of them: [n, f]."""
        places = torch.arange(n, device=self.means.device).clamp_max(len(self) - 1)
        return self.means[places]

    def part(self, tokens: Tensor, place: int) -> Tensor:
        """(e_t - c) J of ``tokens`` [...] at ``place``: [..., f]."""
        return self._part(tokens, self.again if place else self.first)

    def _part(self, tokens: Tensor, slope: Slope) -> Tensor:
        linear = slope.linear
        return (self.table[tokens].to(linear) - self.centre.to(linear)) @ linear

    def parts(self, ids: Tensor) -> Tensor:
        """(e_t - c) J of prompts ``ids`` [rows, n], over all prompts: [rows, n, f]."""
        first, rest = self._part(ids[:, :1], self.first), self._part(ids[:, 1:], self.guess)
        return torch.cat([first, rest], dim=1)

    def expected(self, tokens: Tensor, place: int) -> Tensor:
        """The expected states of ``tokens`` [...] at ``place``: [..., f]."""
        part = self._part(tokens, self.guess if place else self.first)
        return self.mean(place + 1)[-1] + part

    def misses(self, goal: Tensor, place: int, shift: Tensor | None = None) -> Tensor:
        """Half the squared distance of each token's state from ``goal`` [rows, F]: [rows, V].

        Less what all tokens share.  ``shift`` [rows, f], where it is known, is by how much states
        differ from those expected.
        """
        slope = self.guess if place else self.first
        parts = self.features(goal) - self.mean(place + 1)[-1]
        return slope.scores(self._scorer, parts if shift is None else parts - shift.to(parts))

    def likeliest(self, goal: Tensor) -> Tensor:
        """The likeliest prompts for the states ``goal`` [rows, n, F]: ids [rows, n]."""
        return self._nearest(self.features(goal) - self.mean(goal.shape[1]), self.guess)

    def likelier(self, ids: Tensor, states: Tensor, goal: Tensor) -> Tensor:
        """The likeliest prompts, given the ``states`` [rows, n, F] of ``ids`` [rows, n].

        What the map was off by at a place is taken to stay the same, with an error like those over
        all prompts: frequent tokens, as punctuation, differ less from others after one prompt.
        """
        return self._nearest(self.features(goal - states) + self.parts(ids), self.guess)

    def instead(
        self, tokens: Tensor, states: Tensor, goal: Tensor, later: Tensor, refuted: Tensor
    ) -> Tensor:
        """The likeliest other tokens, given the ``states`` [m, F] of ``tokens`` [m]: ids [m].

        None of those ``refuted`` [m, c].  ``later`` [m] (bool): not at the first place.
        """
        ids = tokens.clone()
        for place, here in enumerate((~later, later)):
            if bool(here.any()):
                slope = self.guess if place else self.first
                parts = self.features((goal - states)[here]) + self._part(tokens[here], slope)
                off = slope.scores(self._scorer, parts).scatter_(1, refuted[here], torch.inf)
                ids[here] = off.argmin(1)
        return ids

    def lead(self, tokens: Tensor, others: Tensor, states: Tensor, goal: Tensor) -> Tensor:
        """How much nearer the ``goal`` [m, F] is to the ``states`` of ``tokens`` [m] than to those
        expected of ``others`` [m], by the difference of squares over their own distance's: [m].

        1 where the goal is the state, 0 where both are equally near.
        """
        slope = self.guess
        one, other = self._part(tokens, slope), self._part(others, slope)
        rows = (self.table[others] - self.table[tokens]).to(slope.weights)
        across = rows @ slope.weights  # (part(other) - part(one)) C⁻¹
        apart = (across * (other - one)).sum(-1)
        along = (across * self.features(goal - states)).sum(-1)
        return 1 - 2 * along / apart

    @cached_property
    def same(self) -> Tensor:
        """For each token the first one with its embedding, which has its states: [V]."""
        return first_equal(self.table)

    def near(self, ids: Tensor, distances: Tensor) -> Tensor:
        """Whether another token's state is expected within ``distances`` [rows, n] of a prompt's.

        Tokens with equal embeddings count as one.  For prompts ``ids`` [rows, n]: bool [rows, n].
        True without a look at their distances where more than `FEW` tokens are near in the
        directions in which states spread most.  A token that is not finite is near none.
        """

        def near(place: int, where: slice) -> Tensor:
            own, within = ids[:, where].flatten(), distances[:, where].flatten()
            parts = [torch.empty(0, dtype=torch.bool, device=ids.device)]
            for some in torch.arange(len(own), device=ids.device).split(self._at_once):
                parts.append(self._near(own[some], within[some], place))
            return torch.cat(parts).reshape(len(ids), -1)

        return torch.cat([near(0, slice(0, 1)), near(1, slice(1, None))], dim=1)

    def _near(self, own: Tensor, within: Tensor, place: int) -> Tensor:
        """The same for tokens ``own`` [m] at one ``place``: [m]."""
        axes, (tokens, values, rounded) = self.axes[place], self._ordered[place]
        room, at = within.to(axes) + rounded, axes[own, 0]
        first = torch.searchsorted(values, at - room)
        count = torch.searchsorted(values, at + room, right=True) - first
        which = torch.arange(len(own), device=own.device).repeat_interleave(count)
        skipped = (first - count.cumsum(0) + count)[which]
        other = tokens[torch.arange(len(which), device=own.device) + skipped]
        apart = (self.same[other] != self.same[own[which]]).nonzero()[:, 0]
        which, other = which[apart], other[apart]
        for axis in axes.T[1:]:
            if not len(which):
                return torch.zeros_like(own, dtype=torch.bool)
            still = (axis[other] - axis[own[which]]).abs() <= room[which]
            left = still.nonzero()[:, 0]
            which, other = which[left], other[left]
        count = torch.bincount(which, minlength=len(own))
        few = count[which] <= FEW
        which, other = which[few], other[few]
        off = self.part(other, place) - self.part(own[which], place)
        right = which[torch.linalg.vector_norm(off, dim=-1) <= within.to(off)[which]]
        return (count > FEW) | (torch.bincount(right, minlength=len(own)) > 0)

    def others(
        self,
        tokens: Tensor,
        place: int,
        count: int,
        shift: Tensor | None = None,
        distinct: bool = False,
    ) -> Tensor:
        """The other tokens whose states are expected nearest to those of ``tokens`` [m].

        ``distinct``: of equal embeddings the first alone, and none equal to its own.
        Or to what differs from them by ``shift`` [m, f].  The nearest ``count`` at ``place``,
        nearest first: [m, count].
        """
        slope, parts = self._unweighted[1 if place else 0], self.part(tokens, place)
        parts = parts if shift is None else parts + shift.to(parts)
        ids = [tokens.new_empty(0, count)]
        for some in torch.arange(len(tokens), device=tokens.device).split(self._at_once):
            off = slope.scores(self._scorer, parts[some])
            off.scatter_(1, tokens[some, None], torch.inf)
            if distinct:
                first = torch.arange(len(self.same), device=off.device) == self.same
                off.masked_fill_(~first, torch.inf)
                off.scatter_(1, self.same[tokens[some, None]], torch.inf)
            ids.append(off.topk(count, largest=False).indices)
        return torch.cat(ids)

    def _nearest(self, parts: Tensor, later: Slope) -> Tensor:
        """The best token for each of ``parts`` [rows, n, f]: ids [rows, n]."""
        rows, n, width = parts.shape
        first = self.first.scores(self._scorer, parts[:, 0]).argmin(1)[:, None]
        points = parts[:, 1:].reshape(-1, width).split(self._at_once)
        rest = [later.scores(self._scorer, some).argmin(1) for some in points if len(some)]
        return torch.cat([first, torch.cat([first[:0, 0], *rest]).reshape(rows, n - 1)], dim=1)

    @property
    def _at_once(self) -> int:
        """Points whose scores with all tokens are computed together."""
        return max(16, scores_at_once(self.table) // len(self.table))

    def with_means(self, means: Tensor, states: int) -> LinearMap:
        """The same with other ``means`` [N, f], for which further ``states`` were computed."""
        return replace(self, means=means, states=self.states + states)

    @cached_property
    def _ordered(self) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
        """For the first place and later ones: tokens by their coordinate in the first direction,
        these coordinates, and what rounding adds to differences.  What is not finite comes last.
        """
        orders = []
        for axes in self.axes:
            finite = axes.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf)
            values, tokens = finite[:, 0].sort()
            rounded = ROUNDED * finite.masked_fill(~finite.isfinite(), 0).abs().max()
            orders.append((tokens, values, rounded))
        return tuple(orders)

    @cached_property
    def _unweighted(self) -> tuple[Slope, Slope]:
        """The slopes at the first place and later in the usual metric."""
        first, again = self.first.linear.double(), self.again.linear.double()
        usual = torch.eye(first.shape[1], dtype=torch.float64, device=first.device)
        of = partial(Slope.of, self.table, self.centre, factor=usual)
        return of(linear=first), of(linear=again)

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self.table)


def ridge(inputs: Tensor, outputs: Tensor) -> Tensor:
    """The slope of ``outputs`` [s, f] on ``inputs`` [s, d] by ridge regression: [d, f], float64.

    Both are centred by the caller.
    """
    x, y = inputs.double(), outputs.double()
    values, vectors = decomposition(x.T @ x)
    values = values.clamp_min(0)
    inner = vectors.T @ (x.T @ y)
    power, total = inner.square().sum(1), y.square().sum()
    strengths = STRENGTHS.to(values) * values.mean().clamp_min(torch.finfo(values.dtype).tiny)
    inverse = 1 / (values + strengths[:, None])
    error = (total - ((2 - values * inverse) * inverse * power).sum(1)).clamp_min(0)
    freedom = (len(x) - 1 - (values * inverse).sum(1)).clamp_min(0.5)
    best = inverse[(error / freedom**2).argmin()]
    return vectors @ (best[:, None] * inner)


def factor(residuals: Tensor, scale: Tensor) -> Tensor:
    """The Cholesky factor of the covariance of ``residuals`` [s, f]: [f, f], float64.

    Features are divided by their standard deviations first, so that no outlier among them decides,
    and their correlations shrunk towards none (Chen, Wiesel, Eldar and Hero, arXiv 0907.4698).
    ``scale`` is the mean square of the states that tokens differ by; its rounding is the least
    variance.
    """
    u = residuals.double()
    count, width = u.shape
    variance = u.square().mean(0)
    least = LEAST * torch.maximum(variance.max(), scale.double())
    spread = (variance + least).sqrt()
    u = u / spread
    correlation = u.T @ u / count
    square, trace = correlation.square().mean(), correlation.diagonal().mean()
    share = shrinkage(square, trace, count, width)
    shrunk = (1 - share) * correlation
    shrunk.diagonal().add_(share * trace + LEAST)
    return torch.linalg.cholesky(shrunk) * spread[:, None]


def shrinkage(square: Tensor, trace: Tensor, count: int, width: int) -> float:
    """The share of the unit matrix in the covariance of ``count`` normal rows of some ``width``.

    ``square`` [] is the mean square of the entries of their sample covariance, ``trace`` [] the
    mean of its diagonal (Chen, Wiesel, Eldar and Hero, arXiv 0907.4698).
    """
    room = (count + 1) * (square - trace**2 / width)
    return float(((square + trace**2) / room).clamp(0, 1)) if room > 0 else 1.0
