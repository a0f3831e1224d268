"""Means of bounded draws: intervals that are valid at every size, however the draws are spread."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from assay.harness.checking.bounded import mean_interval
from assay.harness.checking.plans import ERROR


def misses(p: float, n: int) -> float:
    """How often the mean ``p`` of n yes-or-no draws is outside their interval: exact."""
    hits = np.arange(n + 1)
    ends = [mean_interval((np.arange(n) < k).astype(float), 1 - ERROR) for k in hits]
    outside = [not low <= p <= high for low, high in ends]
    return float(stats.binom.pmf(hits, n, p)[outside].sum())


@pytest.mark.parametrize("n", [8, 48])
@pytest.mark.parametrize("p", [0.02, 0.5, 0.97])
def test_a_mean_of_yes_or_no_is_outside_in_one_of_twenty_at_most(p, n):
    assert misses(p, n) <= ERROR


def test_a_skewed_mean_is_outside_in_one_of_twenty_at_most():
    rng, mean = np.random.default_rng(0), 4.0 / (4.0 + 0.2)
    ends = [mean_interval(rng.beta(4.0, 0.2, 16), 1 - ERROR) for _ in range(300)]
    assert np.mean([not low <= mean <= high for low, high in ends]) <= ERROR


def test_draws_that_are_all_the_same_leave_room_for_others():
    """About as much as the exact interval of a share: n draws without one of another kind."""
    for n in (8, 16, 48):
        low, high = mean_interval(np.ones(n), 0.95)
        exact = stats.binomtest(n, n).proportion_ci(0.95, method="exact").low
        assert high == 1.0
        assert exact - 0.2 < low < exact
    low, high = mean_interval(np.zeros(48), 0.95, -1.0, 1.0)
    assert -0.1 < low < 0.0 < high < 0.1
    wide = mean_interval(np.zeros(16), 0.95, -1.0, 1.0)
    assert wide[0] < -0.1
    assert wide[1] > 0.1


def test_the_interval_closes_on_the_mean():
    widths = []
    for n in (20, 200, 2000):
        low, high = mean_interval(np.tile([0.2, 0.6], n // 2), 0.95)
        assert low < 0.4 < high
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.05


def test_the_order_of_the_draws_and_their_sign_do_not_matter():
    x = np.random.default_rng(0).random(30)
    low, high = mean_interval(x, 0.95)
    assert mean_interval(x[::-1], 0.95) == pytest.approx((low, high))
    assert mean_interval(-x, 0.95, -1.0, 0.0) == pytest.approx((-high, -low))
    inside, outside = mean_interval(x, 0.9), mean_interval(x, 0.99)
    assert outside[0] < low < inside[0] < inside[1] < high < outside[1]
