"""Intervals for the mean of numbers that lie within known limits, valid at every sample size."""

from __future__ import annotations

import numpy as np

from assay.harness.results.arrays import Array

BETS = np.append(np.geomspace(0.02, 0.8, 12), 1.0)
"""Shares of the capital that are bet; all of it is right where all draws are the same."""

WEIGHTS = np.append(np.full(12, 0.5 / 12), 0.5)
"""Of the capital, by bet."""

HALVINGS = 26
"""Of the range in which an end of the interval is sought."""


def mean_interval(
    sample: Array, confidence: float, low: float = 0.0, high: float = 1.0
) -> tuple[float, float]:
    """The mean of independent draws [n] that lie in [``low``, ``high``], by betting.

    Waudby-Smith and Ramdas (JRSS B 2024): a gambler who bets that draws are above a mean m gains
    on average nothing where m is the mean, so the capital exceeds 2 / error with a probability of
    at most error / 2 (Markov).  All m at which it does are left out, on either side.  Nothing is
    assumed of the distribution; n draws that are all the same leave about what Clopper and
    Pearson's interval leaves.
    """
    x = (np.clip(sample, low, high) - low) / (high - low)
    capital = np.log(2 / (1 - confidence))
    ends = _lower(x, capital), 1 - _lower(1 - x, capital)
    return low + (high - low) * ends[0], low + (high - low) * ends[1]


def _lower(x: Array, capital: float) -> float:
    """The least mean that is not left out; the capital falls as the mean rises."""
    below, above = 0.0, float(x.mean())
    for _ in range(HALVINGS):
        middle = (below + above) / 2
        if middle > 0 and _log_capital(x, middle) < capital:
            above = middle
        else:
            below = middle
    return below


def _log_capital(x: Array, m: float) -> float:
    """Of bets that draws ``x`` [n] in [0, 1] are above ``m``, averaged over `BETS`."""
    with np.errstate(divide="ignore"):
        gains = np.log(1 - BETS[:, None] + BETS[:, None] * x / m).sum(1)
        return float(np.logaddexp.reduce(np.log(WEIGHTS) + gains))
