"""E10 can come out either way, and is not decided before a descent begins."""

from __future__ import annotations

import pytest

from assay.claims.inversion import test_warm_start as warm
from assay.fixtures import inversions
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import toy, verdict

CLAIM = warm.test_a_warm_start_comes_to_meet_the_inequality


@pytest.mark.parametrize(("grid", "came"), [(None, Verdict.UPHELD), (1e-9, Verdict.REFUTED)])
def test_a_start_that_is_not_close_enough_becomes_so_by_descending(grid, came, monkeypatch):
    if grid is not None:
        monkeypatch.setattr(inversions, "GRID", (grid,))
    subject = toy("reference:small")
    warm.rates(subject).clear()
    result = verdict(CLAIM, subject, arguments={"way": warm.WARM})
    warm.rates(subject).clear()
    assert result.verdict is came
    assert result.details["recorded"]["held_at_the_start"] == 0
