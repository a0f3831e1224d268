"""What profiles spend, and why the least of them spends no less on findings."""

from __future__ import annotations

import numpy as np

from assay.harness.checking.plans import ERROR
from assay.harness.checking.profiles import PROFILES
from assay.harness.checking.statistics import bounded_mean


def test_glance_draws_as_much_as_quick_for_half_of_it_would_decide_little():
    glance, quick = PROFILES["glance"], PROFILES["quick"]
    assert (glance.draws, glance.prompts) == (quick.draws, quick.prompts)
    low, half = (
        bounded_mean.interval(np.ones(n), 1 - ERROR)[0]
        for n in (glance.prompts, glance.prompts // 2)
    )
    assert half < 0.71 < 0.8 < low
