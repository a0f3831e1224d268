"""Verdicts: margins mean what they say, and results survive JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from assay.harness.results.encoding import decode, encode
from assay.harness.results.verdicts import DECADES, Counterexample, Kind, Result, Verdict, margin

positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
finite = st.floats(min_value=0, allow_infinity=False)
not_finite = st.sampled_from([math.inf, -math.inf, math.nan])


@given(finite, finite)
def test_the_margin_is_negative_only_beyond_the_bound(observed, bound):
    if margin(observed, bound) < 0:
        assert observed > bound
    if observed <= bound:
        assert margin(observed, bound) >= 0


@given(positive, positive)
def test_a_margin_turns_its_sign_when_bound_and_observed_change_places(one, other):
    assert margin(one, other) == pytest.approx(-margin(other, one), abs=1e-9)


@given(finite, finite, finite)
def test_less_observed_is_never_less_margin(one, other, bound):
    low, high = sorted([one, other])
    assert margin(low, bound) >= margin(high, bound)


@given(st.floats(), st.floats(allow_nan=False))
def test_margins_stay_within_their_decades(observed, bound):
    assert -DECADES <= margin(observed, bound) <= DECADES


@given(not_finite, st.floats(min_value=0))
def test_what_is_not_finite_is_as_far_beyond_the_bound_as_can_be_said(observed, bound):
    assert margin(observed, bound) == -DECADES


def test_a_factor_of_ten_is_one_decade():
    assert margin(1e-5, 1e-4) == pytest.approx(1)
    assert margin(1e-3, 1e-4) == pytest.approx(-1)
    assert margin(2e-5, 2e-5) == 0


def test_exact_agreement_has_the_largest_margin_even_for_a_bound_of_zero():
    assert margin(0.0, 0.0) == DECADES
    assert margin(1e-300, 0.0) == -DECADES


@given(
    st.floats(),
    st.none() | st.tuples(st.floats(), st.floats()),
    st.dictionaries(st.text(), st.floats()),
)
def test_a_result_comes_back_from_json_and_what_is_not_finite_as_none(observed, interval, details):
    result = Result(
        *("C2", "cached", Kind.LAW, "tiny:llama", Verdict.REFUTED, observed),
        interval=interval,
        counterexample=Counterexample({"prompt": "<1>(1)"}, where="logits"),
        details=details,
        sample={"margin": np.array([[1.0, np.nan], [np.inf, 4.0]])},
    )
    back = decode(encode(result), Result)
    assert back.observed == (observed if math.isfinite(observed) else None)
    assert (back.counterexample, back.verdict) == (result.counterexample, result.verdict)
    np.testing.assert_array_equal(back.sample["margin"], result.sample["margin"])
    assert encode(back) == encode(result)
    assert back == decode(encode(result), Result)
    assert back != replace(back, sample={"margin": np.ones(4)})


@pytest.mark.parametrize(
    "packed",
    [{}, [], {"shape": [2], "float64": "!"}, {"shape": [3], "float64": "eJxjYAACAAgAAQ=="}],
)
def test_an_array_that_is_none_is_a_value_error(packed):
    result = {"id": "C1", "name": "c", "kind": "law", "subject": "s", "verdict": "upheld"}
    with pytest.raises(ValueError, match=r"array|sample"):
        decode(json.dumps(result | {"sample": {"margin": packed}}), Result)


def test_half_a_surrogate_pair_in_a_token_is_written_as_its_escape():
    result = Result("C1", "c", Kind.LAW, "s", Verdict.REFUTED, details={"\ud800": ["\ud800"]})
    assert decode(encode(result), Result).details == {"\\ud800": ["\\ud800"]}
