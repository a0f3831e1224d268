"""A regression of a trained model's states on a table of tokens and on the states before.

Features are standardised and clipped.  Tokens are ranked by Mahalanobis' distance in the metric of
what the regression leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.harness.inversion.linear import factor, shrinkage

CLIP = 8.0
"""Standard deviations beyond which a feature says no more."""

TOKEN, BEFORE = 0.2, 0.02
"""Strength of the ridge for what a token and the state before add, relative to the mean variance:
on held-out text and random tokens, half and a tenth rank fewer tokens first."""

AGAIN = 1.0
"""Strength of the ridge for tokens tried at one place, relative to the mean variance: as good as
the best by cross-validation of five from 0.1 to 10."""


@dataclass(frozen=True)
class Part:
    """One regression: standardised states [F] on a ``table`` of tokens [d] and states before [F].

    ``centre`` and ``spread`` [F] standardise; ``token`` [d, F] and ``before`` [F, F] are slopes,
    ``offset`` [F] the rest's mean; ``white`` [F, F] turns residuals to the unit covariance;
    ``halves`` [V] are half the squared lengths of tokens' contributions in that metric.
    """

    centre: Tensor
    spread: Tensor
    token: Tensor
    before: Tensor
    offset: Tensor
    white: Tensor
    halves: Tensor

    @classmethod
    def fit(cls, table: Tensor, ids: Tensor, states: Tensor, before: Tensor | None) -> Part:
        """Fit to tokens ``ids`` [s] of the ``table`` [V, d] with ``states`` [s, F]."""
        centre, spread = states.mean(0), deviations(states)
        y = ((states - centre) / spread).clamp(-CLIP, CLIP).double()
        width = table.shape[1]
        inputs = [table[ids].double()]
        if before is not None:
            inputs.append(((before - centre) / spread).clamp(-CLIP, CLIP).double())
        x = torch.cat(inputs, 1)
        middle, mean = x.mean(0), y.mean(0)
        x, y = x - middle, y - mean
        square = x.T @ x
        for some, ridge in ((slice(width), TOKEN), (slice(width, None), BEFORE)):
            if len(diagonal := square.diagonal()[some]):
                diagonal.add_(ridge * diagonal.mean())
        slope = torch.linalg.solve(square, x.T @ y)
        left = y - x @ slope
        lower = factor(left, y.square().mean())
        unit = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
        white = torch.linalg.solve_triangular(lower, unit, upper=False).T
        token, white = slope[:width].float(), white.float()
        after = slope[width:] if before is not None else torch.zeros_like(unit)
        parts = [(some @ (token @ white)).square().sum(1) for some in table.split(8192)]
        halves = torch.cat(parts)
        offset = mean - middle @ slope
        return cls(centre, spread, token, after.float(), offset.float(), white, halves / 2)

    @property
    def density(self) -> Tensor:
        """The logarithm of the metric's volume [], to compare distances by several parts."""
        return self.white.diagonal().abs().log().sum() - self.spread.log().sum()

    def standard(self, states: Tensor) -> Tensor:
        """``states`` [..., F], standardised."""
        return ((states - self.centre) / self.spread).clamp(-CLIP, CLIP)

    def rest(self, states: Tensor, before: Tensor | None = None) -> Tensor:
        """What a token adds to ``states`` [..., F] after those ``before``, in the metric."""
        left = self.standard(states) - self.offset
        if before is not None:
            left = left - self.standard(before) @ self.before
        return left @ self.white

    def part(self, rows: Tensor) -> Tensor:
        """What tokens with ``rows`` [..., d] of the table are expected to add: [..., F]."""
        return rows @ (self.token @ self.white)

    def misses(self, table: Tensor, rest: Tensor) -> Tensor:
        """Half the squared distance of each token of ``table`` from ``rest`` [m, F]: [m, V]."""
        weights = rest @ (self.token @ self.white).T
        return self.halves - weights @ table.T + rest.square().sum(1, keepdim=True) / 2

    def corrected(
        self, table: Tensor, ids: Tensor, left: Tensor, rest: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`misses` [V] of one ``rest`` [F] by a corrected regression, whose metric has a volume of
        another logarithm: by how much it differs, [].

        ``left`` [m, F] are the residuals of tokens ``ids`` [m].  They are regressed on the
        ``table`` in turn (kernel ridge), and the covariance of what is left of them when each is
        left out gives the metric.
        """
        count, width = left.shape
        slope, rows = self.token @ self.white, table[ids]
        middle, mean = rows.mean(0), left.mean(0)
        rows, left, goal = rows - middle, (left - mean).double(), rest - mean
        kernel = (rows @ rows.T).double()
        ridge = kernel + AGAIN * kernel.diagonal().mean() * torch.eye(count).to(kernel)
        hat = torch.linalg.solve(ridge, kernel)  # symmetric, since both commute
        weights = torch.linalg.solve(ridge, left)
        off = (left - hat @ left) / (1 - hat.diagonal())[:, None]
        gram = off @ off.T
        trace = gram.diagonal().sum() / (count * width)
        share = shrinkage(gram.square().sum() / (count * width) ** 2, trace, count, width)
        even = (share * trace).clamp_min(torch.finfo(torch.float32).tiny ** 0.5)
        some = (1 - share) / count
        # By Woodbury's identity all is in terms of what the few tokens span.
        lower = torch.linalg.cholesky(even * torch.eye(count).to(gram) + some * gram)
        unlike = (torch.linalg.solve_triangular(lower, off, upper=False) * some**0.5).float()
        weights, even = weights.float(), even.float()
        inner = weights @ weights.T
        by = torch.cat([rows, weights @ slope.T, unlike @ slope.T, (slope @ goal)[None]]).T
        misses = []
        for tokens, halves in zip(table.split(8192), self.halves.split(8192), strict=True):
            near, add, along, by_goal = (tokens @ by).split([count, count, count, 1], 1)
            near = near - middle @ rows.T
            square = halves + goal.square().sum() / 2 - near @ (weights @ goal) - by_goal[:, 0]
            square = square + (near * (near @ inner / 2 + add)).sum(1)
            along = unlike @ goal - along - near @ (weights @ unlike.T)
            misses.append((square - along.square().sum(1) / 2) / even)
        volume = -lower.diagonal().log().sum() - (width - count) / 2 * even.double().log()
        return torch.cat(misses), volume.float()


def deviations(states: Tensor) -> Tensor:
    """The standard deviations [F] of ``states`` [s, F], none of them 0."""
    return states.std(0).clamp_min(torch.finfo(states.dtype).tiny ** 0.5)
