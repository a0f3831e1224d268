"""A bound: which side is claimed, and how far an interval is from it."""

from __future__ import annotations

import math

import pytest

from assay.harness.checking.findings import Bound
from assay.harness.checking.statistics import (
    median,
)
from assay.harness.results.verdicts import DECADES, Verdict


@pytest.mark.parametrize(
    ("limits", "interval", "expected"),
    [
        ({"at_least": 1.0}, (1.0, 2.0), Verdict.UPHELD),
        ({"above": 1.0}, (1.0, 2.0), Verdict.INCONCLUSIVE),
        ({"at_least": 1.0}, (0.5, 1.0), Verdict.INCONCLUSIVE),
        ({"above": 1.0}, (0.5, 1.0), Verdict.REFUTED),
        ({"at_most": 1.0}, (0.5, 1.0), Verdict.UPHELD),
        ({"below": 1.0}, (0.5, 1.0), Verdict.INCONCLUSIVE),
        ({"at_most": 1.0}, (1.0, 2.0), Verdict.INCONCLUSIVE),
        ({"below": 1.0}, (1.0, 2.0), Verdict.REFUTED),
        ({"at_least": 0.8, "at_most": 1.25}, (0.9, 1.1), Verdict.UPHELD),
        ({"at_least": 0.8, "at_most": 1.25}, (1.1, 1.3), Verdict.INCONCLUSIVE),
        ({"at_least": 0.8, "at_most": 1.25}, (1.3, 1.4), Verdict.REFUTED),
        ({"at_least": 0.8, "at_most": 1.25}, (0.1, 2.0), Verdict.INCONCLUSIVE),
        ({"above": 1.0}, (-math.inf, math.inf), Verdict.INCONCLUSIVE),
    ],
)
def test_a_bound_knows_which_side_holds_its_end(limits, interval, expected):
    assert Bound(median, **limits).verdict(interval) is expected


def test_the_margin_counts_half_widths_from_the_limit():
    bound = Bound(median, above=1.0)
    assert bound.margin(4.0, (2.0, 6.0)) == 0.5
    assert bound.margin(3.0, (1.0, 5.0)) == 0.0
    assert bound.margin(-1.0, (-3.0, 1.0)) == -2.0
    assert Bound(median, at_most=1.0).margin(-4.0, (-6.0, -2.0)) == 1.5
    assert bound.margin(2.0, (2.0, 2.0)) == DECADES
    assert bound.margin(1.0, (1.0, 1.0)) == 0.0
    assert bound.margin(5.0, (-math.inf, math.inf)) == -DECADES
    assert str(Bound(median, at_least=0.8, at_most=1.25)) == "median ≥ 0.8 and ≤ 1.25"
