"""The claims on shifted, exchanged and permuted positions: each can come out either way."""

from __future__ import annotations

import functools

import pytest
import torch

from assay.claims.positions import test_position_effects as effects
from assay.claims.positions import test_position_shift as shift
from assay.fixtures import texts
from assay.harness.models.capabilities import recorded
from assay.harness.models.subject.positions import position_table
from assay.harness.operations import variants
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.effects import (
    renamed,
    saying,
    seeing_all,
    settled,
    with_positions,
)
from assay.harness.tests.support.toys import toy


def positioned(change):
    """A copy whose table of positions is ``change`` of what it was; what it can do was found
    before.
    """
    subject = renamed()
    recorded.reasons(subject)
    weight = position_table(subject).weight
    with torch.no_grad():
        weight.copy_(change(weight.clone()))
    return subject


# A8.

SHIFTED = shift.test_a_constant_added_to_learned_positions_changes_rows


def test_a_table_of_equal_rows_does_not_mind_a_constant():
    assert settled(SHIFTED, toy("gpt2")).verdict is Verdict.UPHELD
    result = settled(SHIFTED, positioned(lambda rows: rows[:1].expand_as(rows)))
    assert (result.verdict, result.observed) == (Verdict.REFUTED, 0.0)


# A9.

EXCHANGED = effects.test_moving_position_0_matters_more_than_moving_any_other
MORE_THAN_UNTRAINED = effects.test_moving_position_0_matters_more_than_in_untrained_models


def apart(rows):
    """Rows of one length that are orthogonal to each other, as far as there is room."""
    return 0.5 * torch.eye(rows.shape[1]).repeat(len(rows) // rows.shape[1] + 1, 1)[: len(rows)]


def loud_first(rows):
    rows = apart(rows)
    rows[0] *= 10
    return rows


def faint_first(rows):
    """The first row is the mean of the others: exchanging it moves less than another pair."""
    rows = apart(rows)
    rows[0] = rows[1:].mean(0)
    return rows


def all_seeing(change):
    """A model that attends both ways, whose first token is no other than the rest."""
    subject = seeing_all("gpt2")
    weight = position_table(subject).weight
    with torch.no_grad():
        weight.copy_(change(weight.clone()))
    return subject


@pytest.mark.nightly
def test_a_model_with_a_loud_first_position_and_one_with_a_faint_one(monkeypatch):
    monkeypatch.setattr(variants, "untrained", lambda _: all_seeing(apart))
    monkeypatch.setattr(effects, "prompts", functools.partial(texts.prompts, lengths=[8]))
    assert settled(EXCHANGED, all_seeing(loud_first), 2048).verdict is Verdict.UPHELD
    assert settled(EXCHANGED, all_seeing(faint_first), 2048).verdict is Verdict.REFUTED


def test_a_first_position_is_compared_with_those_of_untrained_models():
    assert settled(MORE_THAN_UNTRAINED, positioned(loud_first), 32).verdict is Verdict.UPHELD
    result = settled(MORE_THAN_UNTRAINED, positioned(faint_first), 32)
    assert (result.verdict, result.observed < 1) == (Verdict.REFUTED, True)


# A13, A14.


def test_a_model_of_the_last_token_and_one_of_their_sum():
    claim = effects.test_permuting_tokens_changes_the_output
    assert settled(claim, saying(lambda ids: ids)).verdict is Verdict.UPHELD
    pooling = saying(lambda ids: ids.sum(1, keepdim=True).expand_as(ids))
    result = settled(claim, pooling)
    assert (result.verdict, result.observed) == (Verdict.REFUTED, 0.0)


def test_the_question_s_permutation_of_faint_and_of_loud_positions():
    claim = effects.test_the_question_s_own_permutation_barely_changes_the_output
    faint, loud = (with_positions(lambda rows, f=f: f * rows) for f in (0.2, 30.0))
    assert settled(claim, faint).verdict is Verdict.UPHELD
    assert settled(claim, loud).verdict is Verdict.REFUTED
