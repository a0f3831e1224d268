"""Estimates the linear map of a model and target from few passes, once, and keeps it on disk."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from assay.harness.inversion.candidates import Prefixes
from assay.harness.inversion.linear import LinearMap, Slope, factor, ridge, spread
from assay.harness.inversion.target import BEFORE, Target, embedded, head_alone, head_of
from assay.harness.models import capabilities
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.operations import corpus
from assay.harness.operations.likeliest import Scorer
from assay.harness.results.cache_folder import cache_folder

SAMPLE = 1.5
"""Tokens in the sample after one prompt, for each dimension of the embedding."""

TYPICAL = 8
"""Tokens in that prompt."""

LENGTH = 32
"""The least number of places whose means are estimated."""

FEWEST, MOST = 4, 32
"""Tokens of prompts, for each dimension: their number is doubled until the map is `GOOD`."""

WORK = 2**39
"""Tokens of prompts times parameters, beyond which they are not doubled."""

GOOD = 0.98
"""The share of held-out tokens that rank first at which there are enough."""

HELD_OUT = 4
"""One in so many prompts is held out."""

RIVALS = 4096
"""Tokens among which those are ranked."""

TOKENS_AT_ONCE = 512
"""Tokens in one pass: four times as many take a tenth longer each on a processor."""


def linear_map(
    subject: Subject, target: Target, n: int = LENGTH, keep: Path | None = None
) -> LinearMap:
    """The map for ``target`` and prompts of ``n`` tokens, made once and kept with the subject.

    Also in the folder ``keep``, where that is given.
    """
    maps = _maps(subject)
    path = None if keep is None else path_of(keep, subject, target)
    stored = maps.get(target) or (
        None if path is None else read(path, subject, basis_of(subject, target))
    )
    linear = stored or estimate(subject, target)
    if len(linear) < min(n, subject.context or n):
        linear = longer(subject, target, linear, n)
    if path is not None and (linear is not stored or not path.exists()):
        write(path, linear)
    maps[target] = linear
    return linear


@memo
def _maps(subject: Subject) -> dict[Target, LinearMap]:
    return {}


def estimate(subject: Subject, target: Target) -> LinearMap:
    """The map from a sample of tokens after two prompts, and from prompts of text and at random.

    Those have `LENGTH` tokens: the same number of tokens in longer ones would be so few prompts
    that the means of places, and with them the slope, would be those of single prompts.

    The first guess is by the slope over all prompts or by that after one, whichever ranks more
    held-out tokens first: what prompts add to the states of a deep untrained model would take too
    many of them to average out.
    """
    table, made = embedded(subject), sample(subject, target)
    prompts, (sampled, prompt) = made.prompts.copy(), _drawn(subject)
    centre, states = prompts.centre, _after(subject, target, prompt, sampled)
    alone, after = (_regression(table[sampled], each, centre) for each in (made.states, states))
    fit = prompts.best(after.linear)
    fit.means[0] = alone.means
    first, again, guess = (
        Slope.of(table, centre, each.linear, each.factor) for each in (alone, after, fit)
    )
    axes = (spread(table, centre, alone.linear), spread(table, centre, after.linear))
    means, computed = fit.means.to(guess.linear), 2 * len(states) + prompts.ids.numel()
    return LinearMap(
        *(table, centre, means, first, guess, again, axes, computed, prompts.share),
        basis=basis_of(subject, target),
    )


def longer(subject: Subject, target: Target, linear: LinearMap, n: int) -> LinearMap:
    """``linear`` with the means of further places: those of ``n`` tokens at least."""
    prompts = Prompts(subject, target, n)
    prompts.add(FEWEST * len(linear.centre))
    means = prompts.fit(linear.guess.linear.double(), everyone=True).means.to(linear.means)
    means[: len(linear)] = linear.means
    return linear.with_means(means, prompts.ids.numel())


@dataclass(frozen=True)
class Sample:
    """Random ``tokens`` [s], their ``states`` [s, f], each in a prompt of its own, and prompts."""

    tokens: Tensor
    states: Tensor
    prompts: Prompts


def sample(subject: Subject, target: Target) -> Sample:
    """What a map is first made from; kept until another target's is made, for a second map."""
    samples = _samples(subject)
    if target not in samples:
        samples.clear()
        tokens, prompts = _drawn(subject)[0], Prompts(subject, target, LENGTH)
        prompts.add(FEWEST * len(prompts.centre))
        samples[target] = Sample(tokens, _after(subject, target, tokens[:0], tokens), prompts)
    return samples[target]


@memo
def _samples(subject: Subject) -> dict[Target, Sample]:
    return {}


def _drawn(subject: Subject) -> tuple[Tensor, Tensor]:
    """Random tokens [s], and a random prompt [t]."""
    vocabulary, width = embedded(subject).shape
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randperm(vocabulary, generator=draw)[: int(SAMPLE * width)]
    prompt = torch.randint(vocabulary, (TYPICAL,), generator=draw).to(subject.device)
    prompt = subject.content(prompt)[: (subject.context or TYPICAL + 1) - 1]
    return tokens.to(subject.device), prompt


@dataclass(frozen=True)
class _Fit:
    """A regression of states on embeddings.

    The state expected at the mean embedding, [f] or at n places [n, f]; the slope [d, f]; and the
    Cholesky factor of the covariance of the rest [f, f].
    """

    means: Tensor
    linear: Tensor
    factor: Tensor


def _after(subject: Subject, target: Target, prefix: Tensor, tokens: Tensor) -> Tensor:
    """The states of ``tokens`` [s], each after the prompt ``prefix``: [s, f]."""
    prefixes = Prefixes(subject, target, 1)
    prefixes.extend(prefix[None])
    basis = basis_of(subject, target)
    parts = [reduced(part, basis) for _, part in prefixes.states(tokens[None])]
    return torch.cat(parts, dim=1)[0]


def _regression(rows: Tensor, states: Tensor, centre: Tensor) -> _Fit:
    """The regression of ``states`` [s, f] on the ``rows`` [s, d] of the embedding."""
    x, y = rows.double(), states.double()
    fine = x.isfinite().all(1) & y.isfinite().all(1)  # in 16 bits some states may have overflowed
    x, y = x[fine], y[fine]
    middle, mean = x.mean(0), y.mean(0)
    linear = ridge(x - middle, y - mean)
    expected = (x - middle) @ linear
    lower = factor(y - mean - expected, expected.square().mean())
    return _Fit(mean + (centre - middle) @ linear, linear, lower)


class Prompts:
    """Prompts ``ids`` [k, n] and their states, of text and at random; some are held out.

    Half of them are windows of a fixed text where there is a tokenizer.  ``share`` of the held-out
    tokens rank first by the best fit.
    """

    share = 0.0

    def __init__(self, subject: Subject, target: Target, n: int) -> None:
        self.subject, self.target = subject, target
        self.table = embedded(subject)
        self.centre = self.table[self.table.isfinite().all(1)].double().mean(0)
        length = max(LENGTH, 1 << (n - 1).bit_length())
        self.length = length if subject.context is None else min(length, subject.context)
        self.draw = torch.Generator().manual_seed(1)
        self.text = text_of(subject)
        device = self.table.device
        self.ids = torch.empty(0, self.length, dtype=torch.long, device=device)
        self.basis = basis_of(subject, target)
        width = target.features(subject) if self.basis is None else self.basis.shape[1]
        self.states = torch.empty(0, self.length, width, device=device)

    def copy(self) -> Prompts:
        """A copy, which other prompts can be added to."""
        copied = copy.copy(self)
        copied.draw = torch.Generator().set_state(self.draw.get_state())
        return copied

    def add(self, tokens: int) -> None:
        """Add prompts of so many tokens in all."""
        count = max(HELD_OUT, math.ceil(tokens / self.length))
        ids = draw_prompts(self.subject, self.text, count, self.length, self.draw)
        at_once = max(1, TOKENS_AT_ONCE // self.length)
        states = [
            reduced_output(self.subject, self.target, some, self.basis)
            for some in ids.split(at_once)
        ]
        self.ids = torch.cat([self.ids, ids])
        self.states = torch.cat([self.states, *(each.to(self.states) for each in states)])

    def best(self, linear: Tensor) -> _Fit:
        """The fit with the slope ``linear`` [d, f], or with that over all prompts."""
        width = len(self.centre)
        parameters = sum(each.numel() for each in self.subject.model.parameters())
        most = min(MOST * width, WORK // parameters)
        while True:
            shares = [self._share_first(self.fit(each)) for each in (linear, None)]
            self.share = max(shares)
            if self.share >= GOOD or 2 * self.ids.numel() > most:
                break
            self.add(self.ids.numel())
        return self.fit(linear if shares[0] >= shares[1] else None, everyone=True)

    def fit(self, linear: Tensor | None, everyone: bool = False) -> _Fit:
        """The fit with a given slope, or with its own; to ``everyone`` or without the held out."""
        chosen = torch.arange(len(self.ids), device=self.ids.device) % HELD_OUT > 0
        ids, states = (each if everyone else each[chosen] for each in (self.ids, self.states))
        x, y = self.table[ids].double() - self.centre, states.double()
        fine = x.isfinite().all(-1) & y.isfinite().all(-1)
        x = x.masked_fill(~fine[..., None], 0)
        share = fine.double().mean(0).clamp_min(1 / len(ids))[:, None]

        def less_means(values: Tensor) -> tuple[Tensor, Tensor]:
            values = values.masked_fill(~fine[..., None], 0)
            means = values.mean(0) / share
            return means, (values - means)[:, 1:][fine[:, 1:]]

        if linear is None:
            linear = ridge(less_means(x)[1], less_means(y)[1])
        means, rest = less_means(y - x @ linear)
        return _Fit(means, linear, factor(rest, (x @ linear).square().mean()))

    def _share_first(self, fit: _Fit) -> float:
        """The share of tokens in the held-out prompts that rank first among some."""
        out = slice(None, None, HELD_OUT)
        ids, states = self.ids[out, 1:], self.states[out, 1:].double()
        draw = torch.Generator().manual_seed(2)
        some = torch.randint(len(self.table), (RIVALS,), generator=draw).to(ids.device)
        rivals = torch.cat([ids.flatten(), some]).unique()
        rows = self.table[rivals]
        slope = Slope.of(rows, self.centre, fit.linear, fit.factor)
        parts = (states - fit.means[1:]).flatten(0, 1).to(slope.linear)
        guesses = rivals[slope.scores(Scorer(rows), parts).argmin(1)]
        return float((guesses == ids.flatten()).double().mean())


def basis_of(subject: Subject, target: Target) -> Tensor | None:
    """What logits are multiplied with before a map: the head that made them, [V, hidden].

    Nothing is lost but what capping does to them, and distances become no longer.  None for other
    targets, which have few features.
    """
    if target.through not in ("head", "logits"):
        return None
    weight = head_of(subject).weight.detach().float()
    return weight / torch.linalg.vector_norm(weight)


def reduced(states: Tensor, basis: Tensor | None) -> Tensor:
    """``states`` [..., F] times ``basis`` [F, f], where there is one."""
    return states if basis is None else states.to(basis) @ basis


def reduced_output(subject: Subject, target: Target, ids: Tensor, basis: Tensor | None) -> Tensor:
    """The `reduced` output for ``ids`` [k, n]: [k, n, f].

    Of logits that are the head's product alone, without making them: two products with the
    vocabulary cost as much as the model's blocks.
    """
    if basis is None or (target.through == "logits" and not head_alone(subject)):
        return reduced(target.output(subject, ids), basis)
    states = replace(target, through=BEFORE[target.through]).output(subject, ids)
    bias = getattr(head_of(subject), "bias", None)
    product = states.to(basis) @ _head_by_basis(subject)
    return product if bias is None else product + bias.to(basis) @ basis


@memo
def _head_by_basis(subject: Subject) -> Tensor:
    """The head times the basis: [hidden, hidden]."""
    weight = head_of(subject).weight.detach().float()
    return weight.T @ (weight / torch.linalg.vector_norm(weight))


def draw_prompts(
    subject: Subject, text: Tensor, count: int, length: int, draw: torch.Generator
) -> Tensor:
    """``count`` prompts of ``length`` tokens: [count, length].

    Half of them are windows of ``text``, where it is long enough, the others random.
    """
    ids = torch.randint(len(embedded(subject)), (count, length), generator=draw)
    if len(text) > length:
        begins = torch.randint(len(text) - length, (count // 2,), generator=draw)
        # The first of every two, so that half of those held out are text.
        ids[: 2 * len(begins) : 2] = text[begins[:, None] + torch.arange(length)]
    return subject.content(ids.to(subject.device))


def text_of(subject: Subject) -> Tensor:
    """The ids of a fixed text; none without a tokenizer."""
    if "tokenizer" not in capabilities.probe(subject):
        return torch.empty(0, dtype=torch.long)
    return torch.tensor([token for line in corpus.ids(subject) for token in line])


FORMAT = 2
"""Of the files: raised when the estimate or its fields change."""

SLOPES, NUMBERS = ("first", "guess", "again"), ("linear", "weights", "halves")
"""The names of a map's slopes, and of a slope's numbers."""


def default_folder() -> Path | None:
    """``inversion`` in Assay's cache; None where there is no home."""
    try:
        return cache_folder() / "inversion"
    except RuntimeError:
        return None


def path_of(folder: Path, subject: Subject, target: Target) -> Path | None:
    """The file for ``target``; None for a model without a digest, which cannot be told apart."""
    if not subject.digest:
        return None
    words = f"{FORMAT} {subject.digest} {target!r} {subject.dtype} {subject.attention}"
    return folder / f"{hashlib.sha256(words.encode()).hexdigest()[:32]}.safetensors"


def read(path: Path, subject: Subject, basis: Tensor | None = None) -> LinearMap | None:
    """The map in ``path``, of states times ``basis``; None where there is none, or damage."""
    table, device = embedded(subject), str(subject.device)
    try:
        with safe_open(path, "pt", device=device) as file:
            parts = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        first, guess, again = (
            Slope(*(parts[f"{name}.{each}"] for each in NUMBERS)) for name in SLOPES
        )
        centre, means, states, share = (
            parts[name] for name in ("centre", "means", "states", "share")
        )
        axes = (parts["axes.first"], parts["axes.later"])
    except (OSError, SafetensorError, KeyError):
        return None
    if centre.shape != table.shape[1:] or first.halves.shape != table.shape[:1]:
        return None
    return LinearMap(
        table, centre, means, first, guess, again, axes, int(states), float(share), basis
    )


def write(path: Path, linear: LinearMap) -> None:
    """Write ``linear``, all of it or nothing; what cannot be written is made again next time."""
    parts: dict[str, Tensor] = {
        "centre": linear.centre,
        "means": linear.means,
        "states": torch.tensor(linear.states),
        "share": torch.tensor(linear.share),
        "axes.first": linear.axes[0],
        "axes.later": linear.axes[1],
    }
    for name in SLOPES:
        slope: Slope = getattr(linear, name)
        parts |= {f"{name}.{each}": getattr(slope, each) for each in NUMBERS}
    with suppress(OSError, SafetensorError):
        save(path, parts)


def save(path: Path, parts: dict[str, Tensor]) -> None:
    """Write tensors, all of them or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    os.close(handle)
    try:
        save_file({name: part.contiguous() for name, part in parts.items()}, name)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
