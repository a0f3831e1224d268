"""E23 on texts that are constructed: ways of generating repeat less than greedy text, or more."""

from __future__ import annotations

import pytest
import torch

from assay.claims.inversion import test_repetition as repetition
from assay.harness.checking.profiles import Profile
from assay.harness.operations import contrastive, generation
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import fresh, verdict

CLAIMS = {
    "num_beams": repetition.test_beams_repeat_less_than_greedy_text,
    "repetition_penalty": repetition.test_a_penalty_repeats_less_than_greedy_text,
    "contrastive": repetition.test_contrastive_search_repeats_less_than_greedy_text,
}


def text(repeats, row):
    """A token over and over, or tokens of which none comes twice."""
    return (
        [100 + row] * repetition.TOKENS if repeats else list(range(100, 100 + repetition.TOKENS))
    )


@pytest.mark.parametrize(
    ("greedy", "other", "expected"),
    [
        (True, False, Verdict.UPHELD),
        (False, True, Verdict.REFUTED),
        (True, True, Verdict.INCONCLUSIVE),
    ],
)
@pytest.mark.parametrize("way", CLAIMS)
def test_e23_hangs_on_which_of_two_ways_repeats(monkeypatch, way, greedy, other, expected):
    def texts(subject, ids, tokens, **how):
        assert set(how) <= {way}
        return [text(other if how else greedy, row) for row in range(len(ids))]

    def continued(subject, ids, tokens):
        return torch.tensor([text(other, 7)] * len(ids))

    monkeypatch.setattr(generation, "generate_texts", texts)
    monkeypatch.setattr(contrastive, "contrastive_search", continued)
    profile = Profile("test", examples=0, shrink=0)
    result = verdict(CLAIMS[way], fresh("reference:small"), profile)
    assert result.verdict is expected, result.reason
    assert result.observed == pytest.approx(other - greedy, abs=0.02)
