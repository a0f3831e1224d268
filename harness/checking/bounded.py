"""Intervals for the mean of numbers that lie within known limits, valid at every sample size."""

from __future__ import annotations

import numpy as np

from assay.harness.results.arrays import Array

BETS = np.append(np.geomspace(0.02, 0.8, 12), 1.0)
"""Shares of the capital to bet; betting all is best where all draws are the same."""

WEIGHTS = np.append(np.full(12, 0.5 / 12), 0.5)
"""Initial share of the capital behind each bet."""

HALVINGS = 26
"""Bisections of the range that contains an end of the interval."""


def mean_interval(
    sample: Array, confidence: float, low: float = 0.0, high: float = 1.0
) -> tuple[float, float]:
    """The mean of independent draws [n] that lie in [``low``, ``high``], by betting.

    Waudby-Smith and Ramdas (JRSS B 2024): a gambler who bets that draws are above a mean m gains
    on average nothing where m is the mean.  So the capital exceeds 2 / error with a probability
    of at most error / 2 (Markov).  The interval excludes all m at which it does, on either side.
    Nothing is assumed about the distribution; for n equal draws the interval is about Clopper and
    Pearson's.
    """
    x = (np.clip(sample, low, high) - low) / (high - low)
    capital = np.log(2 / (1 - confidence))
    ends = _lower(x, capital), 1 - _lower(1 - x, capital)
    return low + (high - low) * ends[0], low + (high - low) * ends[1]


def _lower(x: Array, capital: float) -> float:
    """The smallest mean that is not excluded; the capital falls as the mean rises."""
    below, above = 0.0, float(x.mean())
    for _ in range(HALVINGS):
        middle = (below + above) / 2
        if middle > 0 and _log_capital(x, middle) < capital:
            above = middle
        else:
            below = middle
    return below


def _log_capital(x: Array, m: float) -> float:
    """The log capital after betting that draws ``x`` [n] in [0, 1] exceed ``m``, over `BETS`."""
    with np.errstate(divide="ignore"):
        gains = np.log(1 - BETS[:, None] + BETS[:, None] * x / m).sum(1)
        return float(np.logaddexp.reduce(np.log(WEIGHTS) + gains))
