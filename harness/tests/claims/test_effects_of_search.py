"""E22 on searches whose outcome is constructed, and on a model that loses what it was given."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from assay.claims.inversion import test_inversion_exact as exact
from assay.fixtures.texts import RANDOM
from assay.harness.checking.profiles import Profile
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import as_trained, verdict

PROFILE = Profile("test", examples=0, shrink=0)
CLAIM = exact.test_exact_search_recovers_the_tokens
HOW = {"source": RANDOM, "depth": "one block"}


@pytest.mark.parametrize(
    ("rows", "places", "expected"),
    [
        (0, 0, Verdict.UPHELD),
        (1, 1, Verdict.INCONCLUSIVE),  # a token in one prompt of about thirty
        (4, None, Verdict.REFUTED),
    ],
)
def test_e22_hangs_on_the_share_that_is_recovered(monkeypatch, rows, places, expected):
    subject, prompts, prompt_ids = as_trained("gpt2"), exact.texts.prompts, []

    def noted(*arguments):
        for prompt in prompts(*arguments):
            prompt_ids.append(prompt.ids)
            yield prompt

    def search(subject, target, wanted):
        ids = prompt_ids[-1].clone()
        ids[:rows, :places] = (ids[:rows, :places] + 1) % subject.vocabulary
        none = torch.zeros(ids.shape)
        return SimpleNamespace(ids=ids, verified=ids == ids, tried=none, distances=none)

    monkeypatch.setattr(exact.texts, "prompts", noted)
    monkeypatch.setattr(exact, "exact", search)
    result = verdict(CLAIM, subject, PROFILE, arguments=HOW)
    assert result.verdict is expected, result.interval
    low, high = result.interval
    assert low < high


def test_e22_is_refuted_of_a_model_that_cannot_tell_tokens_apart():
    """Half of the vocabulary has the other half's embeddings."""
    subject = as_trained("gpt2")
    with torch.no_grad():
        half = subject.vocabulary // 2
        subject.embedding_table[half : 2 * half] = subject.embedding_table[:half]
    assert verdict(CLAIM, subject, PROFILE, arguments=HOW).verdict is Verdict.REFUTED
