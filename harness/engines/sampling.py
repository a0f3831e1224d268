"""What sampling makes of a distribution, and how well tokens fit to the one that they are from."""

from __future__ import annotations

import math

import numpy as np
import scipy  # its modules are imported when used: no law about a model needs them
import torch
from torch import Tensor

from assay.harness.checking.statistics import Pair, Statistic
from assay.harness.engines.interface import Sampling
from assay.harness.results.arrays import Array

BINS = 8
"""Classes of equal probability that tokens are counted in."""


def processed(logits: Tensor, ids: Tensor, sampling: Sampling) -> Tensor:
    """``logits`` [batch, V] after ``ids`` [batch, n] as sampling changes them, in float64.

    By the definitions and in the order of transformers.  Log-probabilities do as well, unless
    there is a repetition penalty.
    """
    scores = logits.double()
    if sampling.repetition_penalty != 1.0:
        own = scores.gather(1, ids)
        penalty = sampling.repetition_penalty
        scores = scores.scatter(1, ids, torch.where(own < 0, own * penalty, own / penalty))
    scores = scores / sampling.temperature
    if sampling.top_k:
        least = scores.topk(min(sampling.top_k, scores.shape[1])).values[:, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if sampling.top_p < 1.0:
        ordered, order = scores.sort(descending=True)
        shares = ordered.softmax(-1)
        behind = shares.cumsum(-1) - shares >= sampling.top_p
        scores = scores.masked_fill(torch.zeros_like(behind).scatter(1, order, behind), -torch.inf)
    return scores


def places(
    probabilities: Tensor, chosen: Tensor, chance: torch.Generator, first: Tensor | None = None
) -> Array:
    """Where each chosen token [rows] is in its distribution [rows, V], from 0 to 1: [rows].

    The tokens are laid end to end by falling probability, those of ``first`` (bool [rows, V])
    before the others, and a place is drawn within the chosen one.  If it is sampled from the
    distribution, its place is uniform, whatever that is (the randomised probability integral
    transform).  A token of probability 0 comes last.
    """
    order = probabilities if first is None else probabilities + 2.0 * first
    own = order.gather(1, chosen[:, None])
    before = torch.where(order > own, probabilities, 0.0).sum(1)
    alike = torch.where(order == own, probabilities, 0.0).sum(1)  # ties count as one
    spread = torch.rand(len(chosen), generator=chance, dtype=torch.float64)
    place = torch.where(alike > 0, before + spread * alike, 1.0)
    return np.asarray(place.clamp(0.0, 1.0).numpy())


def _chi_square(sample: Array) -> float:
    """Pearson's statistic of places in `BINS` classes of equal probability."""
    counts = np.histogram(sample, BINS, (0.0, 1.0))[0]
    return float(scipy.stats.chisquare(counts).statistic)


def _misfit(sample: Array) -> float:
    return (_chi_square(sample) - (BINS - 1)) / len(sample)


def _interval(sample: Array, confidence: float) -> Pair:
    """The noncentralities under which the statistic is neither too small nor too large."""
    observed, tail = _chi_square(sample), (1.0 - confidence) / 2

    def end(probability: float) -> float:
        def excess(size: float) -> float:
            return float(scipy.stats.ncx2.cdf(observed, BINS - 1, size)) - probability

        if excess(1e-9) <= 0:
            return 0.0
        return float(scipy.optimize.brentq(excess, 1e-9, 4 * observed + 100.0))

    if not math.isfinite(observed):
        return -math.inf, math.inf
    return end(1.0 - tail) / len(sample), end(tail) / len(sample)


misfit = Statistic("misfit", _misfit, _interval, fewest=64)
"""How far the distribution of places is from uniform: Σ (p - q)² / q over `BINS` classes, 0 if it
is; from Pearson's chi-square, with the interval of its noncentrality."""
