"""A map of a trained model's states: what a token, and the state before it, make of a state.

States of trained models depend on the tokens before as much as on their own, and a few of their
features are thousands of times as large as others.  So features are standardised and clipped, and
regressed on the token's embedding and on the state of the token before, which is a target too.
Tokens are ranked by Mahalanobis' distance in the metric of what the regression leaves.  The first
place has a regression of its own, and so have states that are as long as those of the first place:
attention sinks (arXiv 2309.17453), which may occur at any place.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from assay.harness.inversion.linear import factor
from assay.harness.inversion.set_up import TOKENS_AT_ONCE, draw_prompts, save, text_of
from assay.harness.inversion.target import Target, embedded
from assay.harness.models.capabilities import Missing
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.operations import generation

LENGTH = 20
"""Tokens of the prompts from which the map is made."""

SAMPLED, DRAWN = 384, 640
"""Prompts of the model's own text, where it generates, and of random tokens and a fixed text."""

ALONE = 4000
"""Prompts of one token; a quarter of them are the first ids, which are frequent in most texts."""

CLIP = 8.0
"""Standard deviations beyond which a feature says no more."""

RIDGE = 1e-3
"""Strength of the ridge regression relative to the mean eigenvalue of its inputs."""

LONGER = 2.0
"""How many times as long first states are as others where sinks are told apart by their length."""

BENT = 0.3
"""Strength of the ridge by which tried tokens bend the map, relative to the kernel's diagonal."""


@dataclass(frozen=True)
class Part:
    """One regression: standardised states [F] on ``rows`` of tokens [d] and states before [F].

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
    def fit(cls, rows: Tensor, ids: Tensor, states: Tensor, before: Tensor | None) -> Part:
        """Fit to tokens ``ids`` [s] of the table ``rows`` [V, d] with ``states`` [s, F]."""
        centre = states.mean(0)
        spread = states.std(0).clamp_min(torch.finfo(states.dtype).tiny ** 0.5)
        y = ((states - centre) / spread).clamp(-CLIP, CLIP).double()
        width = rows.shape[1]
        inputs = [rows[ids].double()]
        if before is not None:
            inputs.append(((before - centre) / spread).clamp(-CLIP, CLIP).double())
        x = torch.cat(inputs, 1)
        middle, mean = x.mean(0), y.mean(0)
        x, y = x - middle, y - mean
        square = x.T @ x
        square.diagonal().add_(RIDGE * square.diagonal().mean())
        slope = torch.linalg.solve(square, x.T @ y)
        left = y - x @ slope
        lower = factor(left, y.square().mean())
        unit = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
        white = torch.linalg.solve_triangular(lower, unit, upper=False).T
        token, white = slope[:width].float(), white.float()
        after = slope[width:] if before is not None else torch.zeros_like(unit)
        halves = torch.cat([(some @ (token @ white)).square().sum(1) for some in rows.split(8192)])
        offset = mean - middle @ slope
        return cls(centre, spread, token, after.float(), offset.float(), white, halves / 2)

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
        """What tokens with ``rows`` [..., d] are expected to add, in the metric: [..., F]."""
        return rows @ (self.token @ self.white)

    def misses(self, table: Tensor, rest: Tensor) -> Tensor:
        """Half the squared distance of each token of ``table`` from ``rest`` [m, F]: [m, V]."""
        weights = rest @ (self.token @ self.white).T
        return self.halves - weights @ table.T + rest.square().sum(1, keepdim=True) / 2

    def bent(self, table: Tensor, goal: Tensor, ids: Tensor, tried: Tensor) -> Tensor:
        """The same for one ``goal`` [F], from tokens ``ids`` [m] after which states are ``tried``
        [m, F], all `rest` without a token: [V].

        What the map was off by at them is a mean, and a kernel ridge regression on tokens' rows.
        """
        rows = table[ids]
        off = tried - self.part(rows)
        mean = off.mean(0)
        goal = goal - mean
        misses = self.misses(table, goal[None])[0]
        if len(ids) == 1:
            return misses
        middle = rows.mean(0)
        kernel = (rows - middle) @ (rows - middle).T
        kernel.diagonal().add_(BENT * kernel.diagonal().mean())
        weights = torch.linalg.solve(kernel, off - mean)  # [m, F]
        near = table @ (rows - middle).T - middle @ (rows - middle).T  # [V, m]
        across = table @ ((self.token @ self.white) @ weights.T)  # [V, m]
        square = ((near @ (weights @ weights.T)) * near).sum(1) / 2
        return misses + (near * (across - weights @ goal)).sum(1) + square


@dataclass(frozen=True)
class ForwardMap:
    """The map for one model and target, over the table of ``rows`` [V, d] of unit variance.

    ``first`` is of the first place and of states longer than ``sink``, ``later`` of the others.
    ``states`` were computed for it.
    """

    rows: Tensor
    first: Part
    later: Part
    sink: float
    states: int

    def at(self, place: int, state: Tensor) -> Part:
        """The part for the ``state`` [F] of a ``place``."""
        return self.first if place == 0 or float(state.norm()) > self.sink else self.later


def forward_map(subject: Subject, target: Target, keep: Path | None = None) -> ForwardMap:
    """The map for ``target``, made once and kept with the subject, and in the folder ``keep``."""
    maps = _maps(subject)
    if target not in maps:
        path = None if keep is None else _path(keep, subject, target)
        stored = None if path is None else _read(path, subject)
        maps[target] = stored or _estimate(subject, target)
        if path is not None and stored is None:
            _write(path, maps[target])
    return maps[target]


@memo
def _maps(subject: Subject) -> dict[Target, ForwardMap]:
    return {}


def _estimate(subject: Subject, target: Target) -> ForwardMap:
    draw = torch.Generator().manual_seed(2)
    text = text_of(subject)
    prompts = draw_prompts(subject, text, DRAWN, LENGTH, draw)
    own = _own_text(subject)
    prompts = prompts if own is None else torch.cat([prompts, own])
    states = _states(subject, target, prompts)
    vocabulary = subject.vocabulary
    alone = torch.randperm(vocabulary, generator=draw)[: ALONE * 3 // 4]
    alone = torch.cat([alone, torch.arange(min(ALONE // 4, vocabulary))])
    alone = subject.content(alone[:, None].to(subject.device))
    singles = _states(subject, target, alone)[:, 0]
    rows = _rows(subject)
    length = states.norm(dim=-1)
    longest, usual = float(singles.norm(dim=-1).median()), float(length[:, 1:].median())
    sink = (longest * usual) ** 0.5 if longest > LONGER * usual else float("inf")
    fine = length[:, 1:] <= sink
    before = states[:, :-1].clone()
    before[:, 0] = states[:, 1:][fine].mean(0)  # the first state says nothing in the others' units
    later = Part.fit(rows, prompts[:, 1:][fine], states[:, 1:][fine], before[fine])
    first = Part.fit(rows, alone[:, 0], singles, None)
    return ForwardMap(rows, first, later, sink, prompts.numel() + alone.numel())


def _rows(subject: Subject) -> Tensor:
    table = embedded(subject).float()
    return table / table.std()


def _states(subject: Subject, target: Target, prompts: Tensor) -> Tensor:
    at_once = max(1, TOKENS_AT_ONCE // prompts.shape[1])
    return torch.cat([target.output(subject, some).float() for some in prompts.split(at_once)])


def _own_text(subject: Subject) -> Tensor | None:
    """Text that the model samples after random tokens [SAMPLED, LENGTH]; None if it cannot."""
    first = torch.randint(
        subject.vocabulary, (SAMPLED, 1), generator=torch.Generator().manual_seed(3)
    )
    first = subject.content(first.to(subject.device))
    sampling = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    try:
        more = generation.generate_ids(
            subject, first, LENGTH - 1, repetition_penalty=1.0, **sampling
        )
    except (Missing, AttributeError, RuntimeError, TypeError, ValueError) as error:
        pass_on(error)
        return None
    return torch.cat([first, more], dim=1)


FORMAT = 2
"""Of the files: raised when the estimate or its fields change."""


def _path(folder: Path, subject: Subject, target: Target) -> Path | None:
    if not subject.digest:
        return None
    words = f"forward {FORMAT} {subject.digest} {target!r} {subject.dtype} {subject.attention}"
    return folder / f"{hashlib.sha256(words.encode()).hexdigest()[:32]}.safetensors"


def _read(path: Path, subject: Subject) -> ForwardMap | None:
    try:
        with safe_open(path, "pt", device=str(subject.device)) as file:
            first, later = (
                Part(*(file.get_tensor(f"{name}.{each.name}") for each in fields(Part)))
                for name in ("first", "later")
            )
            sink, states = file.get_tensor("numbers").tolist()
    except (OSError, SafetensorError, KeyError):
        return None
    return ForwardMap(_rows(subject), first, later, sink, int(states))


def _write(path: Path, made: ForwardMap) -> None:
    parts = {"numbers": torch.tensor([made.sink, float(made.states)], dtype=torch.float64)}
    for name, part in (("first", made.first), ("later", made.later)):
        parts |= {f"{name}.{each.name}": getattr(part, each.name) for each in fields(Part)}
    with suppress(OSError, SafetensorError):
        save(path, parts)
