"""Running a model under autocast, and what rounding to bfloat16 decides there."""

from __future__ import annotations

import pytest
import torch

from assay.claims.running import test_autocast as claims
from assay.harness.checking.comparing import Unsettled
from assay.harness.checking.reference import run_both
from assay.harness.operations import autocast, variants
from assay.harness.results.errors import Missing
from assay.harness.results.verdicts import HIDDEN, Verdict
from assay.harness.tests.support.toys import adopted, budget, prompt, toy, verdict

LAW = claims.test_autocast_is_as_near_to_float64_as_a_copy_in_bfloat16


def references(subject, ids):
    exact = run_both(subject, lambda s: s.rows(ids), shared=False)
    return autocast.references(subject, variants.in_bfloat16(subject), ids, exact)


def test_products_are_in_bfloat16_and_sums_are_not():
    subject = toy("llama")
    rows = autocast.rows(subject, prompt(subject))
    assert rows["logits"].dtype == torch.bfloat16
    assert rows["state 1"].dtype == torch.float32


def test_an_encoder_runs_under_autocast_and_leaves_no_rounded_states():
    subject = toy("t5")
    ids = prompt(subject)
    before = subject.rows(ids)
    rounded = autocast.rows(subject, ids)
    encoder_alone = subject.rows(ids)
    assert torch.equal(before["logits"], encoder_alone["logits"])
    assert not torch.equal(before["logits"], rounded["logits"].float())


def test_a_model_in_16_bits_has_nothing_to_cast():
    with pytest.raises(Missing, match="nothing is cast"):
        autocast.require(adopted("llama", torch.float16))


def test_a_model_that_does_not_run_under_autocast_says_why():
    with pytest.raises(Missing, match="does not run under it"):
        autocast.require(toy("dbrx"))


@pytest.mark.parametrize(
    ("spec", "n", "what"),
    # Doge without experts could return the scores of routers, and has none.
    [("deepseek_v3", 24, "chooses its experts"), ("doge", 12, "keys")],
)
def test_experts_or_keys_that_rounding_chooses_are_not_compared(spec, n, what):
    subject = toy(spec)

    def otherwise(seed):
        try:
            references(subject, prompt(subject, n, seed=seed))
        except Unsettled as why:
            return what in str(why)
        return False

    assert any(map(otherwise, range(16)))  # which prompt it is depends on the processor


def test_a_model_whose_every_row_rounding_moves_far_is_undecided_and_fails_no_run(monkeypatch):
    monkeypatch.setattr(autocast, "FAR", 0.0)
    result = verdict(LAW, toy("llama"), budget(1))
    assert (result.verdict, result.examples) == (Verdict.INCONCLUSIVE, 0)
    assert result.details[HIDDEN]
