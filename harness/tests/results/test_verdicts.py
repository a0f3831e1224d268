"""Verdicts: margins mean what they say, and results survive JSON."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.harness.results.records import Counterexample
from assay.harness.results.verdicts import DECADES, Kind, Result, Verdict, margin

positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
finite = st.floats(min_value=0, allow_infinity=False)
not_finite = st.sampled_from([math.inf, -math.inf, math.nan])
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
json_like = st.recursive(
    plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)
results = st.builds(
    Result,
    id=st.text(),
    name=st.text(),
    kind=st.sampled_from(Kind),
    subject=st.text(),
    verdict=st.sampled_from(Verdict),
    observed=st.none() | st.floats(),
    bound=st.none() | st.floats(),
    margin=st.none() | st.floats(),
    interval=st.none() | st.tuples(st.floats(), st.floats()),
    examples=st.integers(0),
    seconds=finite,
    reason=st.text(),
    counterexample=st.none()
    | st.dictionaries(st.text(), json_like, max_size=2).map(Counterexample.from_json),
    details=st.dictionaries(st.text(), json_like, max_size=2),
)


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


@given(finite, finite, finite)
def test_a_wider_bound_is_never_less_margin(one, other, observed):
    low, high = sorted([one, other])
    assert margin(observed, low) <= margin(observed, high)


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


@settings(max_examples=30)
@given(results)
def test_results_survive_json(result):
    row = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert Result.from_json(row).as_json() == row


def test_a_round_trip_gives_back_the_same_result():
    result = Result(
        *("C2", "cached", Kind.LAW, "tiny:llama", Verdict.REFUTED, 0.5, 0.25, -0.3, (0.1, 0.9)),
        examples=3,
        seconds=0.5,
        reason="why",
        counterexample=Counterexample({"prompt": "<1>(1)"}, where="logits"),
        details={"controls": [1, 2]},
    )
    assert Result.from_json(json.loads(json.dumps(result.as_json()))) == result


def test_numbers_that_are_not_finite_become_null():
    result = Result("C1", "x", Kind.LAW, "m", Verdict.REFUTED, math.inf, math.nan, -math.inf)
    row = result.as_json()
    assert (row["observed"], row["bound"], row["margin"]) == (None, None, None)


def test_keys_of_later_versions_are_ignored_and_unknown_verdicts_are_not():
    row = Result("C1", "x", Kind.LAW, "m", Verdict.UPHELD).as_json()
    assert Result.from_json({**row, "colour": "green"}) == Result.from_json(row)
    with pytest.raises(ValueError, match="maybe"):
        Result.from_json({**row, "verdict": "maybe"})
