"""Laws: what they come to on sound and broken models, and what a check compares."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import reject
from hypothesis import strategies as st
from torch import Tensor

from assay.fixtures.prompts import cuts, prompts
from assay.harness.checking.check import Broken, Check
from assay.harness.checking.comparing import Unsettled
from assay.harness.checking.laws import law
from assay.harness.checking.reference import Reference
from assay.harness.models.capabilities import Missing
from assay.harness.models.reference.tolerances import bit_equal
from assay.harness.models.subject.rows import Rows
from assay.harness.results.verdicts import UNTIL_BROKEN, Verdict
from assay.harness.tests.support.toys import (
    budget,
    changed,
    exactly,
    one_tensor,
    seeing_ahead,
    toy,
    verdict,
)


def declare(body, needs=(), control="the control"):
    return law("X1", "says", needs=needs, source="here", control=control)(body)


def causality(subject, draw, check):
    """A prefix's states in a whole prompt; its control moves every row by one."""
    ids = draw(prompts(subject, shortest=2), "prompt")
    cut = draw(cuts(ids), "cut")
    expected = check.reference(lambda s: s.rows(ids.ids[:, :cut]))
    whole = subject.rows(ids.ids)
    check.same(expected, whole.at(slice(0, cut)))
    check.rejects(expected, whole.at(slice(1, cut + 1)))


# Verdicts.


def test_a_law_is_upheld_on_a_sound_model():
    result = verdict(declare(causality), toy("llama"), budget(10))
    assert (result.verdict, result.reason, result.counterexample) == (Verdict.UPHELD, "", None)
    assert (result.examples, result.id, result.subject) == (10, "X1", "tiny:llama")
    assert result.margin > 0
    assert 0 < result.observed < result.bound
    assert result.details["controls rejected"].startswith("3 of")


def test_a_model_that_sees_one_token_ahead_is_refuted_by_two_tokens_in_one_row():
    result = verdict(declare(causality), seeing_ahead())
    assert result.verdict is Verdict.REFUTED
    assert result.margin < 0
    shown = result.counterexample.inputs
    assert shown["prompt"].count("(") == 2
    assert "|" not in shown["prompt"]
    assert shown["cut"] == "1"
    assert result.counterexample.observed > result.counterexample.allowed
    assert "row 0, position 0" in result.counterexample.where
    assert result.counterexample.blob


def test_the_least_margin_of_every_example_is_kept_and_that_of_all_is_among_them():
    first, again, other = (
        verdict(declare(causality), toy("llama"), budget(10), seed=seed, derandomize=False)
        for seed in (0, 0, 1)
    )
    margins = first.sample["margin"]
    assert margins.shape == (10,)
    assert min(margins) == first.margin
    assert again.sample["margin"].tolist() == margins.tolist()  # so that runs can be paired
    assert other.sample["margin"].tolist() != margins.tolist()
    assert verdict(declare(causality), seeing_ahead()).sample == {}


def test_examples_in_which_nothing_was_compared_keep_their_place():
    def every_other(draw, check):
        draw(st.integers(), "number")
        if check.record.controls.tried % 2:
            check.judge(0.01, 1.0)
            check.judge(0.1, 1.0)
        check.judge_control(2.0, 1.0)

    margins = verdict(declare(every_other), toy("gpt2"), budget(4)).sample["margin"].tolist()
    assert margins == pytest.approx([float("nan"), 1.0] * 2, nan_ok=True)


def test_a_law_that_ends_no_example_is_undecided():
    def half(draw, check):
        draw(st.integers(), "number")
        check.judge(0.01, 1.0)
        check.judge_control(2.0, 1.0)
        raise Unsettled("the rest cannot be compared")

    result = verdict(declare(half), toy("gpt2"), budget(4))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason == "no example could be compared: the rest cannot be compared"


def test_a_law_that_compares_nothing_is_undecided():
    def idle(draw, check):
        draw(st.integers(), "number")

    def picky(draw, check):
        draw(st.integers(), "number")
        reject()

    for body in (idle, picky):
        result = verdict(declare(body), toy("gpt2"))
        assert result.verdict is Verdict.INCONCLUSIVE
        assert result.reason == "no example could be compared"


def test_a_missing_capability_is_named_before_anything_is_tried():
    result = verdict(declare(causality, needs=["causal"]), toy("bert"))
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.reason.startswith("causal: BertForMaskedLM is an encoder")
    assert result.examples == 0


def test_a_capability_that_turns_out_to_be_missing_makes_a_law_not_applicable():
    def body(draw, check):
        draw(st.integers(), "number")
        raise Missing("no such cache here")

    result = verdict(declare(body), toy("gpt2"))
    assert (result.verdict, result.reason) == (Verdict.NOT_APPLICABLE, "no such cache here")


def test_a_model_that_raises_breaks_the_law_in_its_own_words():
    def refuse(state):
        if state.shape[1] > 5:
            raise RuntimeError("no more than five, please\nand so on")
        return state

    result = verdict(declare(causality), changed("llama", refuse))
    assert result.verdict is Verdict.REFUTED
    assert "RuntimeError: no more than five, please" in result.reason
    assert "and so on" not in result.reason
    assert result.counterexample.inputs["prompt"].count("(") == 6
    assert result.margin < 0
    assert "in refuse" in result.details["traceback"]


def test_it_is_told_at_which_example_a_law_broke_whatever_was_tried_to_make_it_smaller():
    drawn = []

    def body(draw, check):
        drawn.append(draw(st.integers(0, 10**6), "number"))
        check.judge(float(drawn[-1]), 1000.0)

    result = verdict(declare(body), toy("gpt2"))
    assert result.verdict is Verdict.REFUTED
    first = next(place for place, number in enumerate(drawn, start=1) if number > 1000)
    assert result.details[UNTIL_BROKEN] == first
    assert result.examples > first
    assert UNTIL_BROKEN not in verdict(declare(causality), toy("llama")).details


# Models that do not do the same twice.


def test_a_model_with_dropout_is_refuted():
    subject = changed("llama", lambda state: torch.dropout(state, 0.5, train=True))
    result = verdict(declare(causality), subject, budget(shrink=20))
    assert result.verdict is Verdict.REFUTED
    assert "not deterministic" in result.reason
    assert "not deterministic" not in verdict(declare(causality), seeing_ahead()).reason


def test_an_error_that_does_not_come_again_is_refuted_as_not_deterministic():
    readings = iter([0.0, 0.0, 5.0])

    def body(draw, check):
        draw(st.integers(), "number")
        check.judge(next(readings, 0.0), 1.0)

    result = verdict(declare(body), toy("gpt2"))
    assert result.verdict is Verdict.REFUTED
    assert "not deterministic" in result.reason
    assert (result.observed, result.bound) == (5.0, 1.0)
    assert result.counterexample.inputs


# Checks.


@pytest.mark.parametrize("observed", [2.0, float("nan"), float("inf")])
def test_what_is_beyond_the_bound_or_not_finite_is_broken(observed):
    with pytest.raises(Broken):
        Check(toy("gpt2")).judge(observed, 1.0)
    with pytest.raises(Broken):
        Check(toy("gpt2")).judge(float("inf"), float("inf"))


def test_controls_are_run_until_enough_were_rejected():
    check = Check(toy("gpt2"))
    rows = one_tensor(torch.ones(1, 2, 4))
    made = []

    def damaged():
        made.append(1)
        return rows.map(lambda tensor: tensor * 2)

    for _ in range(5):
        check.rejects(exactly(rows), damaged)
    check.rejects(exactly(rows), rows)
    assert (check.record.controls.rejected, check.record.controls.tried, len(made)) == (3, 3, 3)
    assert check.record.controls.margin > 0


def test_bit_equality_is_a_share_and_nan_equals_itself():
    one = torch.tensor([1.0, 2.0, float("nan"), 4.0])
    assert bit_equal(one, one.clone()) == 0
    assert bit_equal(one, torch.tensor([1.0, 2.5, float("nan"), float("nan")])) == 0.5
    assert bit_equal(one, one[:3]) == 1
    assert bit_equal(torch.zeros(0), torch.zeros(0)) == 0


def test_a_float64_copy_that_loses_numbers_accuses_nobody():
    """As where a row of attention is masked entirely, and float64's smallest number overflows."""
    check = Check(toy("gpt2"))
    exact = torch.ones(1, 4, 2, dtype=torch.float64)
    lost = exact.clone()
    lost[0, 1] = math.nan
    plain, oracle = Rows({"logits": exact.float()}), Rows({"logits": lost})
    with pytest.raises(Unsettled, match="the float64 copy gives no numbers"):
        check.same(Reference(plain, oracle), plain)
    with pytest.raises(Broken):  # the model has none where there are some
        Check(toy("gpt2")).same(Reference(oracle.map(Tensor.float), plain), oracle)
