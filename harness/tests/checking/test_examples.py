"""The search behind a law: its budgets, its draws, and how a failure is shown again."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from assay.harness.checking.comparing import Unsettled
from assay.harness.checking.examples import PASSED_OVER, ROUNDS
from assay.harness.checking.laws import law
from assay.harness.checking.profiles import PROFILES
from assay.harness.models.subject import lengths
from assay.harness.operations import training
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import Time, budget, fresh, prompt, toy, verdict


@pytest.fixture
def time(monkeypatch):
    """The time that the brake sees."""
    clock = Time()
    monkeypatch.setattr("assay.harness.models.subject.clock.perf_counter", clock)
    return clock


def declare(body, enough=None):
    return law("X1", "says", source="here", control="the control", enough=enough)(body)


def numbers(draw, check, limit=1000):
    """Holds for numbers up to ``limit``; without a model."""
    number = draw(st.integers(0, 10_000), "number")
    check.judge(float(number), float(limit))
    check.judge_control(limit + 1.0, limit)


# Budgets.


def slow_from(number, time, seconds=600.0, limit=10_000):
    """A law whose examples take so many seconds from the ``number``-th on."""
    tried = itertools.count(1)

    def body(draw, check):
        numbers(draw, check, limit)
        if next(tried) >= number:
            time.sleep(seconds)

    return declare(body)


BRAKED = budget(12, brake=120.0)


def test_a_law_that_takes_too_long_is_not_decided_and_says_why(time):
    result = verdict(slow_from(5, time, 150.0), toy("gpt2"), BRAKED)
    assert (result.verdict, result.examples) == (Verdict.INCONCLUSIVE, 5)
    why = "stopped after 150 s at 5 of 12 examples: the machine is too slow for this profile"
    assert (result.reason, result.counterexample) == (why, None)


@pytest.mark.parametrize(
    ("passes", "gradients", "tried"), [(6, False, 3), (6, True, 2), (0, False, 2), (99, False, 12)]
)
def test_a_law_begins_no_example_that_its_passes_leave_nothing_for(
    monkeypatch, passes, gradients, tried
):
    monkeypatch.setattr("assay.harness.models.subject.lengths.LARGE", 1)
    subject = fresh("gpt2")
    ids = prompt(subject, 16, batch=16)  # two passes of 128 tokens

    def body(draw, check):
        numbers(draw, check, limit=10_000)
        with training.trainable([subject.embedding_table] if gradients else []):
            subject.rows(ids)

    result = verdict(declare(body), subject, replace(budget(12), passes=passes))
    assert (result.verdict, result.examples) == (Verdict.UPHELD, tried)


def test_a_small_model_may_spend_as_much_as_one_that_is_worth_slicing():
    small = toy("gpt2")
    assert lengths.most_tokens(small, 12) > 1000 * 12 * lengths.PASS


def test_a_law_on_a_model_whose_passes_are_too_slow_ends_after_two_of_them(time):
    subject = fresh("gpt2")
    ids = prompt(subject, 3)
    begun: list[int] = []
    subject.blocks[0].register_forward_pre_hook(lambda *_: time.sleep(11.0))

    def body(draw, check):
        for number in range(9):
            begun.append(number)
            subject.rows(ids)
        numbers(draw, check, limit=10_000)

    result = verdict(declare(body), subject, BRAKED)
    assert (result.verdict, result.examples, begun) == (Verdict.INCONCLUSIVE, 0, [0, 1])
    why = "one pass takes 11 s at 0 of 12 examples: the machine is too slow for this profile"
    assert result.reason == why


def test_a_first_pass_that_alone_is_slow_is_no_reason_to_stop(time):
    subject = fresh("gpt2")
    seconds = iter([100.0])
    subject.blocks[0].register_forward_pre_hook(lambda *_: time.sleep(next(seconds, 1.0)))

    def body(draw, check):
        subject.rows(prompt(subject, 3))
        numbers(draw, check, limit=10_000)

    assert verdict(declare(body), subject, BRAKED).verdict is Verdict.UPHELD


def test_a_law_that_is_broken_before_the_brake_strikes_stays_refuted(time):
    result = verdict(slow_from(1, time, seconds=50.0, limit=10), toy("gpt2"), BRAKED)
    assert result.verdict is Verdict.REFUTED
    assert "not deterministic" not in result.reason
    assert result.counterexample.blob


@pytest.mark.parametrize("rejected_at", [1, 12, 13, 30, 10**9])
def test_more_rounds_of_examples_follow_until_the_control_is_rejected(rejected_at):
    tried = itertools.count(1)

    def body(draw, check):
        draw(st.integers(0, 10**9), "number")
        check.judge(0.0, 1.0)
        check.judge_control(2.0 if next(tried) == rejected_at else 0.0, 1.0)

    result = verdict(declare(body), toy("gpt2"), budget(12))
    verdict_ = Verdict.UPHELD if rejected_at < 10**9 else Verdict.INCONCLUSIVE
    assert (result.verdict, result.examples) == (verdict_, min(max(12, rejected_at), 12 * ROUNDS))


def test_a_search_ends_after_so_many_examples_that_do_not_count():
    tried = itertools.count()

    def body(draw, check):
        draw(st.integers(0, 10**9), "number")
        next(tried)
        raise Unsettled("of no use")

    result = verdict(declare(body), toy("gpt2"), budget(12))
    assert (result.verdict, next(tried)) == (Verdict.INCONCLUSIVE, 12 * PASSED_OVER)
    assert result.reason == "no example could be compared: of no use"


def test_shrinking_ends_after_as_many_tries_as_the_profile_has():
    def failing(draw, check):
        draw(st.lists(st.integers(), min_size=30), "list")
        check.judge(2.0, 1.0)

    hasty = verdict(declare(failing), toy("gpt2"), budget(shrink=10))
    assert hasty.verdict is Verdict.REFUTED
    assert hasty.examples <= 12
    assert "not deterministic" not in hasty.reason
    assert hasty.counterexample.blob


@pytest.mark.parametrize("shrink", [1, 5, 21])
def test_a_failure_whose_shrinking_is_cut_short_is_kept_and_can_be_seen_again(shrink):
    """Whatever Hypothesis was about: passing, failing, or going back to what it knows."""
    law = declare(lambda draw, check: numbers(draw, check, limit=10))
    hasty = verdict(law, toy("gpt2"), budget(shrink=shrink))
    assert hasty.verdict is Verdict.REFUTED
    assert "not deterministic" not in hasty.reason
    counterexample = hasty.counterexample
    again = verdict(law, toy("gpt2"), budget(), replay=counterexample.blob)
    assert again.counterexample.inputs == counterexample.inputs


def test_enough_caps_the_examples_of_a_profile():
    passing = declare(lambda draw, check: numbers(draw, check, limit=10_000), enough=3)
    assert verdict(passing, toy("gpt2"), budget(50)).examples == 3
    assert verdict(passing, toy("gpt2"), budget(2)).examples == 2


def test_profiles_grow_from_quick_to_thorough():
    quick, standard, thorough = (PROFILES[n] for n in ("quick", "standard", "thorough"))
    assert quick.examples < standard.examples < thorough.examples
    assert quick.shrink < standard.shrink < thorough.shrink
    assert quick.draws < standard.draws < thorough.draws
    assert quick.prompts < standard.prompts < thorough.prompts
    assert quick.brake < standard.brake < thorough.brake


# Draws.


def drawn(**session) -> list[int]:
    """The numbers that a passing law is given."""
    values: list[int] = []

    def body(draw, check):
        values.append(draw(st.integers(0, 10**9), "number"))
        check.judge(0.0, 1.0)

    verdict(declare(body), toy("gpt2"), budget(15), **session)
    return values


def test_another_seed_draws_other_examples_and_the_same_one_the_same():
    assert drawn(seed=1) == drawn(seed=1)
    assert drawn(seed=1) != drawn(seed=2)


def test_draws_repeat_where_they_are_to_be_derandomised():
    assert drawn(derandomize=True) == drawn(derandomize=True)


def test_the_smallest_failure_is_found_and_its_blob_shows_it_again():
    failing = declare(lambda draw, check: numbers(draw, check, limit=777))
    first = verdict(failing, toy("gpt2"), budget(100))
    assert first.counterexample.inputs == {"number": "778"}
    again = verdict(failing, toy("gpt2"), replay=first.counterexample.blob)
    assert again.counterexample.inputs == {"number": "778"}
    assert again.counterexample.observed == 778
    assert again.examples < first.examples
