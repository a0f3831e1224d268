"""One batch of gradient descents on a model: its steps, and the result of each row.

Losses are added up, so one backward pass gives every row its own gradient, of the embeddings only.
The host reads losses only every few steps: it then drops finished rows, and resets those that
diverge, which continue at half their learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from assay.harness.inversion import graphs, replay
from assay.harness.inversion.target import Output
from assay.harness.models.machine import accelerators
from assay.harness.models.subject import Subject
from assay.harness.models.subject.clock import stepping
from assay.harness.operations.choices import check_choice
from assay.harness.results.errors import BadInput

RUNNERS = ("eager", "replay", "graph")
"""How a step is run: as written; without the Python between its operations
(`harness.inversion.replay`); or as a CUDA graph, recorded once."""


@dataclass(frozen=True)
class Rule:
    """How to descend: the defaults are document 003's.

    ``optimiser`` is ``descent`` or ``adam``; ``distance`` is ``l1`` or ``l2`` (Euclid's, not its
    square); under ``schedule`` the learning rate falls to a tenth in a line (``linear``) or by a
    ``cosine``, or is ``constant``.  The host checks the losses ``every`` that many steps.
    """

    steps: int = 1000
    optimiser: str = "descent"
    distance: str = "l1"
    schedule: str = "linear"
    every: int = 25

    def __post_init__(self) -> None:
        choices = {
            "optimiser": ("descent", "adam"),
            "distance": tuple(DISTANCES),
            "schedule": tuple(SCHEDULES),
        }
        for name, allowed in choices.items():
            check_choice(name, getattr(self, name), allowed)
        if self.steps < 1 or self.every < 1:
            raise BadInput(f"steps {self.steps}, every {self.every}: at least 1 is needed")


DISTANCES: dict[str, Callable[[Tensor], Tensor]] = {
    "l1": lambda difference: difference.abs().sum((1, 2)),
    "l2": lambda difference: difference.square().sum((1, 2)).clamp_min(1e-30).sqrt(),
}
"""Differences [rows, n, features] → distances [rows]."""

SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda progress: 1 - 0.9 * progress,
    "cosine": lambda progress: 0.55 + 0.45 * torch.cos(math.pi * progress),
    "constant": torch.ones_like,
}
"""Share of the steps so far → factor of the learning rate."""


DIVERGED = 10.0
"""The multiple of its first loss above which a row has diverged; also if it is not finite."""

MANY_STEPS, FEW_NUMBERS = 20, 2**18
"""The fewest steps for which recording one pays, and the numbers in a batch above which it does
not: there arithmetic takes all the time, and a record stores everything that a step computes."""

PASSES = 2
"""Passes of a step: gradients of embeddings alone take as many operations as the output."""

SHARE_DONE = 0.25
"""The share of finished rows at which they are dropped: a step is then recorded again."""

Over = Callable[[int, Tensor, Tensor], Tensor]
"""Which rows may end (bool [R]), given the number of steps so far, the steps after which each row
was close (infinite: not yet) and how often its learning rate was halved."""

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Adam's own (Kingma and Ba, arXiv 1412.6980)."""


@dataclass
class Descent:
    """The result of a descent of R rows.

    ``embeddings`` [R, n, d]; ``losses`` [R, steps + 1], before each step and after the last, NaN
    past a row's end; ``close`` [R], steps until the loss was below the row's threshold (infinite:
    never); ``lowered`` [R], how often the learning rate was halved; ``watched``, embeddings by
    step; ``notes`` for the user.
    """

    embeddings: Tensor
    losses: Tensor
    close: Tensor
    lowered: Tensor
    watched: dict[int, Tensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def concatenate(cls, parts: Sequence[Descent]) -> Descent:
        """The rows of descents that watched the same steps, one after another."""
        return cls(
            torch.cat([part.embeddings for part in parts]),
            torch.cat([part.losses for part in parts]),
            torch.cat([part.close for part in parts]),
            torch.cat([part.lowered for part in parts]),
            {s: torch.cat([part.watched[s] for part in parts]) for s in parts[0].watched},
            sorted({note for part in parts for note in part.notes}),
        )

    def row(self, place: int) -> Descent:
        """One row, as a descent of its own."""
        one = slice(place, place + 1)
        return Descent(
            self.embeddings[one],
            self.losses[one],
            self.close[one],
            self.lowered[one],
            {step: embeddings[one] for step, embeddings in self.watched.items()},
            self.notes,
        )

    @property
    def final(self) -> Tensor:
        """The last loss of every row: [R]."""
        count = self.losses.isfinite().sum(1).clamp_min(1)
        return self.losses.gather(1, count[:, None] - 1)[:, 0]


class Batch:
    """Rows that go through the model together; buffers keep their addresses meanwhile.

    Steps are run by one of `RUNNERS`.
    """

    def __init__(
        self,
        subject: Subject,
        target: Output,
        rule: Rule,
        goal: Tensor,
        start: Tensor,
        rates: Tensor,
        runner: str = "eager",
    ) -> None:
        self.subject, self.target, self.rule = subject, target, rule
        wide = torch.float64 if subject.dtype == torch.float64 else torch.float32
        self.x = start.detach().to(subject.device, wide).clone()
        self.begun = start.detach()
        self.goal = goal.detach().to(self.x)
        self.rates = rates.to(self.x).clone()
        progress = torch.arange(rule.steps, device=self.x.device, dtype=wide) / rule.steps
        self.factors = SCHEDULES[rule.schedule](progress).to(self.x)
        self.step = torch.zeros(1, dtype=torch.long, device=self.x.device)
        self.losses = torch.full(
            (rule.steps + 1, len(start)), math.nan, dtype=wide, device=self.x.device
        )
        adam = rule.optimiser == "adam"
        self.moments = [torch.zeros_like(self.x) for _ in range(2 if adam else 0)]
        self.rows = torch.arange(len(start), device=self.x.device)
        # For every row: its first loss, and the last state with a loss of at most `DIVERGED`
        # times that, with this loss.
        self.first: Tensor | None = None
        self.safe: list[Tensor] = []
        self.level = self.losses[:1]
        self.runner = runner
        self.slope: Callable[[Tensor], tuple[Tensor, ...]] = self._slope

    def run(
        self,
        thresholds: Tensor,
        until_close: bool,
        watch: Sequence[int],
        tell: Callable[[int, Tensor, Tensor], None] | None = None,
        over: Over | None = None,
    ) -> Descent:
        """Run all steps, checking the losses every few steps (and ``over``, if rows may end)."""
        steps, every = self.rule.steps, self.rule.every
        total = len(self.x)
        ends = self.x.clone()
        losses = torch.full((steps + 1, total), math.nan, dtype=self.x.dtype, device=self.x.device)
        lowered = torch.zeros(total, dtype=torch.long, device=self.x.device)
        ended = torch.zeros(total, dtype=torch.bool, device=self.x.device)
        thresholds = thresholds.to(self.x)
        stops = sorted({*range(0, steps, every), steps, *(s for s in watch if 0 <= s <= steps)})
        watched = {0: self.x.clone()} if 0 in watch else {}
        if watched and tell is not None:
            tell(0, watched[0], self._losses_now(total))
        advance = self.stepper()
        for begin, end in pairwise(stops):
            state = [t.clone() for t in (self.x, *self.moments)]
            with stepping(self.subject.model, *self._work(end - begin)):
                for _ in range(begin, end):
                    advance()
                if end == steps:
                    self._measure(steps)
                accelerators.wait(self.x.device)
            recent = self.losses[begin : end + (end == steps)]
            still = ~ended[self.rows]
            bad = self._diverged(recent, state)
            if bool(bad.any()):
                for now, before in zip((self.x, *self.moments), self.safe, strict=True):
                    now[bad] = before[bad]
                self.rates[bad] *= 0.5
                lowered[self.rows[bad & still]] += 1
                recent = torch.where(bad, self.level, recent)
            losses[begin : begin + len(recent), self.rows[still]] = recent[:, still]
            ends[self.rows[still]] = self.x[still]
            if end in watch:
                watched[end] = ends.clone()
                if tell is not None:
                    tell(end, watched[end], self._losses_now(total).masked_fill(ended, math.nan))
            if until_close and end < steps:
                close = _first_below(losses[:end], thresholds)
                ended = close.isfinite() if over is None else over(end, close, lowered)
                finished = ended[self.rows]
                if bool(finished.all()):
                    break
                if bool(finished.sum() >= SHARE_DONE * len(finished)):
                    self._keep(~finished)
                    advance = self.stepper()
        watched |= {step: ends.clone() for step in watch if end < step <= steps}
        close = _first_below(losses, thresholds)
        return Descent(ends, losses.T.contiguous(), close, lowered, watched)

    def _diverged(self, losses: Tensor, state: list[Tensor]) -> Tensor:
        """Which rows diverged, by their ``losses`` [steps, R] since ``state``.

        The last step's own loss is not among them: the next check begins with it.
        """
        if self.first is None:
            self.first, self.safe, self.level = losses[:1].clone(), state, losses[:1].clone()
        fine = losses <= DIVERGED * self.first
        at_begin = fine[0][:, None, None]
        pairs = zip(state, self.safe, strict=True)
        self.safe = [torch.where(at_begin, now, before) for now, before in pairs]
        self.level = torch.where(fine[:1], losses[:1], self.level)
        return ~(fine.all(0) & self.x.isfinite().all((1, 2)))

    def _work(self, steps: int) -> tuple[int, float]:
        """The passes and tokens of ``steps``, each one pass forwards and one backwards.

        Through half of the blocks a token counts half.
        """
        rows, n = self.x.shape[:2]
        share = min(1.0, self.target.depth / max(1, len(self.subject.blocks)))
        return PASSES * steps, PASSES * steps * rows * n * share

    def rewind(self) -> None:
        """Restart in the same buffers."""
        self.x.copy_(self.begun)
        self.step.zero_()
        for moment in self.moments:
            moment.zero_()

    def _keep(self, rows: Tensor) -> None:
        """Continue with only these ``rows`` (bool)."""
        self.x, self.goal, self.rates = self.x[rows], self.goal[rows], self.rates[rows]
        self.moments = [moment[rows] for moment in self.moments]
        self.losses, self.rows = self.losses[:, rows], self.rows[rows]
        self.safe = [state[rows] for state in self.safe]
        self.level = self.level[:, rows]
        self.first = None if self.first is None else self.first[:, rows]

    def _loss(self, x: Tensor) -> Tensor:
        output = self.target.output(self.subject, embeddings=x.to(self.subject.dtype))
        return DISTANCES[self.rule.distance](output.to(self.goal) - self.goal)

    def _measure(self, step: int) -> None:
        with torch.no_grad():
            self.losses[step] = self._loss(self.x)

    def _losses_now(self, total: int) -> Tensor:
        """The current loss of each of ``total`` rows; NaN for those that have ended."""
        losses = torch.full((total,), math.nan, dtype=self.x.dtype, device=self.x.device)
        with torch.no_grad():
            losses[self.rows] = self._loss(self.x)
        return losses

    def stepper(self) -> Callable[[], None]:
        """The function that makes a step; the runner may record it for the remaining rows."""
        if self.runner == "graph":
            return _recorded(self)
        pays = self.rule.steps >= MANY_STEPS and self.x.numel() <= FEW_NUMBERS
        # An injected fault may count passes.
        replays = self.runner == "replay" and pays and self.subject.injected is None
        self.slope = replay.replayed(self._slope, self.x) if replays else self._slope
        return self._advance

    def _slope(self, x: Tensor) -> tuple[Tensor, ...]:
        """The losses at ``x`` [R] and their gradient [R, n, d]."""
        x = x.detach().requires_grad_()
        loss = self._loss(x)
        (gradient,) = torch.autograd.grad(loss.sum(), x)
        return loss.detach(), gradient

    def _advance(self) -> None:
        loss, gradient = self.slope(self.x)
        with torch.no_grad():
            self.losses.index_copy_(0, self.step, loss[None])
            size = (self.rates * self.factors.index_select(0, self.step))[:, None, None]
            self.x.sub_(size * self._direction(gradient))
            self.step += 1

    def _direction(self, gradient: Tensor) -> Tensor:
        if not self.moments:
            return gradient
        slow, fast = BETAS
        mean, square = self.moments
        mean.mul_(slow).add_(gradient, alpha=1 - slow)
        square.mul_(fast).addcmul_(gradient, gradient, value=1 - fast)
        count = (self.step + 1).to(gradient)
        unbiased = (square / (1 - fast**count)).sqrt_().add_(EPSILON)
        return mean / (1 - slow**count) / unbiased


def _first_below(losses: Tensor, thresholds: Tensor) -> Tensor:
    """Steps until ``losses`` [steps, R] are below ``thresholds`` [R], infinite for never: [R]."""
    below = losses < thresholds
    return torch.where(below.any(0), below.to(losses).argmax(0).to(losses), math.inf)


def _recorded(batch: Batch) -> Callable[[], None]:
    """The step as a CUDA graph; restores the buffers after the warm-up steps."""
    buffers = (batch.x, *batch.moments, batch.step, batch.losses)
    originals = [t.clone() for t in buffers]

    def put_back() -> None:
        for now, before in zip(buffers, originals, strict=True):
            now.copy_(before)

    def advance() -> None:
        batch._advance()
        if not accelerators.capturing(batch.x.device):
            put_back()  # each time: after the last step there is no room for losses

    replay = graphs.graph_of(batch.x.device, advance)
    put_back()
    return replay
