"""The search behind a law: its budgets, its draws, and how a failure is shown again."""

from __future__ import annotations

import time

from hypothesis import strategies as st

from harness.laws import law
from harness.profiles import PROFILES
from harness.tests.toys import budget, toy, verdict
from harness.verdicts import Verdict


def declare(body, enough=None):
    return law("X1", "says", source="here", control="the control", enough=enough)(body)


def numbers(draw, check, limit=1000):
    """Holds for numbers up to ``limit``; without a model."""
    number = draw(st.integers(0, 10_000), "number")
    check.judge(float(number), float(limit))
    check.judge_control(limit + 1.0, limit)


# Budgets.


def test_a_search_ends_when_its_seconds_are_spent():
    def slow(draw, check):
        time.sleep(0.02)
        numbers(draw, check, limit=10_000)

    result = verdict(declare(slow), toy("gpt2"), budget(10_000, seconds=0.3))
    assert result.verdict is Verdict.UPHELD
    assert 1 <= result.examples <= 20


def test_even_a_budget_of_no_seconds_tries_one_example():
    passing = declare(lambda draw, check: numbers(draw, check, limit=10_000))
    assert verdict(passing, toy("gpt2"), budget(100, seconds=0.0)).examples == 1


def test_shrinking_ends_when_its_seconds_are_spent():
    def slow(draw, check):
        draw(st.lists(st.integers(), min_size=30), "list")
        time.sleep(0.01)
        check.judge(2.0, 1.0)

    started = time.perf_counter()
    hasty = verdict(declare(slow), toy("gpt2"), budget(shrink=0.2))
    assert time.perf_counter() - started < 30
    assert hasty.verdict is Verdict.REFUTED
    assert "not deterministic" not in hasty.reason
    assert hasty.counterexample["blob"]


def test_a_failure_whose_shrinking_is_cut_short_is_kept_and_can_be_seen_again():
    """Whatever Hypothesis was about: passing, failing, or going back to what it knows."""
    for shrink in (0.01, 0.05, 0.1):

        def slow(draw, check):
            time.sleep(0.005)
            numbers(draw, check, limit=10)

        hasty = verdict(declare(slow), toy("gpt2"), budget(shrink=shrink))
        assert hasty.verdict is Verdict.REFUTED
        assert "not deterministic" not in hasty.reason
        found = hasty.counterexample
        again = verdict(declare(slow), toy("gpt2"), budget(), replay=found["blob"])
        assert again.counterexample["inputs"] == found["inputs"]


def test_enough_caps_the_examples_of_a_profile():
    passing = declare(lambda draw, check: numbers(draw, check, limit=10_000), enough=3)
    assert verdict(passing, toy("gpt2"), budget(50)).examples == 3
    assert verdict(passing, toy("gpt2"), budget(2)).examples == 2


def test_profiles_grow_from_quick_to_thorough():
    quick, standard, thorough = (PROFILES[n] for n in ("quick", "standard", "thorough"))
    assert quick.examples < standard.examples < thorough.examples
    assert quick.seconds < standard.seconds < thorough.seconds


# Draws.


def drawn(**session) -> list[int]:
    """The numbers that a passing law is given."""
    seen: list[int] = []

    def body(draw, check):
        seen.append(draw(st.integers(0, 10**9), "number"))
        check.judge(0.0, 1.0)

    verdict(declare(body), toy("gpt2"), budget(15), **session)
    return seen


def test_another_seed_draws_other_examples_and_the_same_one_the_same():
    assert drawn(seed=1) == drawn(seed=1)
    assert drawn(seed=1) != drawn(seed=2)


def test_draws_repeat_where_they_are_to_be_derandomised():
    assert drawn(derandomize=True) == drawn(derandomize=True)


def test_the_smallest_failure_is_found_and_its_blob_shows_it_again():
    failing = declare(lambda draw, check: numbers(draw, check, limit=777))
    first = verdict(failing, toy("gpt2"), budget(100))
    assert first.counterexample["inputs"] == {"number": "778"}
    again = verdict(failing, toy("gpt2"), replay=first.counterexample["blob"])
    assert again.counterexample["inputs"] == {"number": "778"}
    assert again.counterexample["observed"] == 778
    assert again.examples < first.examples


def test_a_law_takes_parametrised_arguments_beside_its_own():
    def body(limit, draw, check):
        numbers(draw, check, limit)

    for limit, expected in [(10_000, Verdict.UPHELD), (-1, Verdict.REFUTED)]:
        result = verdict(declare(body), toy("gpt2"), arguments={"limit": limit})
        assert result.verdict is expected
