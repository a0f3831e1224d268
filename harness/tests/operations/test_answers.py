"""Judging answers: a wrong token and a wrong log probability are measured, a near tie is not."""

from __future__ import annotations

import math

import pytest
import torch

from assay.harness.checking.reference import Reference
from assay.harness.models.capabilities.serving import Answer
from assay.harness.models.reference.tolerances import TOLERANCES
from assay.harness.models.subject.rows import Rows
from assay.harness.operations import answers
from assay.harness.tests.support.toys import exactly, one_tensor, prompt, toy

LOGITS = torch.tensor([[[3.0, 4.0, 0.0], [0.0, 0.0, 2.0]]])
EXPECTED = exactly(one_tensor(LOGITS, "logits"))


def test_the_likeliest_tokens_fall_short_by_nothing():
    assert answers.shortfall(EXPECTED, [1, 2], 0.0) == 0


def test_another_token_falls_short_by_its_distance_in_rows():
    assert answers.shortfall(EXPECTED, [0, 2], 0.0) == pytest.approx(1 / 5)
    assert answers.shortfall(EXPECTED, [1, 0], 0.0) == pytest.approx(1.0)


def test_log_probabilities_are_compared_with_those_of_float64():
    exact = LOGITS[0].double().log_softmax(-1)[[0, 1], [1, 2]].tolist()
    assert answers.apart(EXPECTED, Answer([1, 2], exact), 0.0) == pytest.approx(0, abs=1e-12)
    assert answers.apart(EXPECTED, Answer([1, 2], [exact[0] + 0.5, exact[1]]), 0.0) == (
        pytest.approx(0.1)
    )
    assert answers.apart(EXPECTED, Answer([1, 2], [math.nan, exact[1]]), 0.0) == math.inf


def test_steps_of_near_tied_experts_do_not_count():
    gaps = torch.tensor([[[1e-9], [1.0]]])
    oracle = Rows({"logits": LOGITS.double(), "router gap": gaps})
    unsettled = Reference(Rows({"logits": LOGITS}), oracle)
    assert answers.shortfall(unsettled, [0, 2], 1e-6) == 0
    assert answers.shortfall(unsettled, [0, 0], 1e-6) == pytest.approx(1.0)


def test_the_bounds_allow_what_two_paths_within_the_tolerance_may_differ_by():
    tolerance = TOLERANCES[torch.float32]
    short, far = answers.allowed(EXPECTED, tolerance)
    assert short == pytest.approx(math.sqrt(2) * tolerance.floor)
    assert far == pytest.approx(tolerance.floor)


def test_the_logits_are_those_that_choose_each_token():
    subject = toy("gpt2")
    ids = prompt(subject, 6, batch=1)
    rows = answers.scored(subject, ids[0, :4].tolist(), ids[0, 4:].tolist())
    whole = subject.rows(ids, states=False)
    assert torch.allclose(rows["logits"], whole["logits"][:, 3:5], atol=1e-5)


def test_masked_logits_do_not_hide_a_wrong_token():
    usual = answers.shortfall(EXPECTED, [2, 0], 0.0)
    masked = torch.full((1, 2, 2), torch.finfo(torch.float32).min)
    expected = exactly(one_tensor(torch.cat([LOGITS, masked], dim=-1), "logits"))
    assert answers.shortfall(expected, [2, 0], 0.0) == pytest.approx(usual)
    assert usual > 0.1
