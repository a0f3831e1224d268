"""E22 can come out either way, by real searches."""

from __future__ import annotations

import pytest

from assay.claims.inversion import test_inversion_exact as exact
from assay.fixtures.texts import RANDOM
from assay.harness.checking.profiles import Profile
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.effects import alike
from assay.harness.tests.support.toys import as_trained, verdict

PROFILE = Profile("test", examples=0, shrink=0)
CLAIM = exact.test_exact_search_recovers_the_tokens
HOW = {"source": RANDOM, "depth": "one block"}


@pytest.mark.parametrize(
    ("made", "came"), [(lambda: as_trained("gpt2"), Verdict.UPHELD), (alike, Verdict.REFUTED)]
)
def test_e22_hangs_on_whether_tokens_are_told_apart(made, came):
    result = verdict(CLAIM, made(), PROFILE, arguments=HOW)
    assert result.verdict is came, result.interval
    low, high = result.interval
    assert low < high
