"""How many draws a finding takes, when it looks at them, and what a seed repeats."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.harness.checking.bounds import Bound
from assay.harness.checking.plans import Plan
from assay.harness.checking.profiles import Profile
from assay.harness.checking.statistics import (
    mean,
    median,
)
from assay.harness.results.encoding import decode, encode
from assay.harness.results.verdicts import Result, Verdict
from assay.harness.tests.support.declared import ABOVE, CLEAR, WRONG, settled, shifted
from assay.harness.tests.support.toys import Time


def test_a_budget_of_no_draws_decides_nothing():
    result = settled(shifted(), draws_of_profile=0)
    assert (result.verdict, result.examples) == (Verdict.INCONCLUSIVE, 0)
    assert result.reason == "the budget is zero: nothing was drawn"
    assert (result.observed, result.bound, result.interval) == (None, None, None)


LIMITS = {"brake": 120.0}
"""Of a profile, in seconds."""


@pytest.fixture
def braked(monkeypatch):
    """What comes of a body of which draw ``slow`` takes 150 s, of the 120 s that there are."""
    clock = Time()
    monkeypatch.setattr("assay.harness.models.subject.clock.perf_counter", clock)

    def result(body, slow, limits=LIMITS, **how):
        def at_length(draws, sample):
            body(draws, sample)
            clock.sleep(150.0 * (slow in draws.numbers))

        return settled(at_length, limits=limits, **how)

    return result


def test_a_finding_that_takes_too_long_is_not_decided_and_says_why(braked):
    result = braked(shifted(0.0), slow=64, block=32)
    assert (result.verdict, result.examples) == (Verdict.INCONCLUSIVE, 96)
    why = "stopped after 150 s at 96 of 256 draws: the machine is too slow for this profile"
    assert result.reason == why


def test_a_decided_effect_does_not_uphold_a_finding_that_takes_too_long(braked):
    assert braked(shifted(control=0.0), slow=64).verdict is Verdict.INCONCLUSIVE
    assert braked(shifted(), slow=0, block=32).verdict is Verdict.INCONCLUSIVE


def test_a_finding_about_a_large_model_ends_earlier(braked):
    limits = {"brake": 300.0, "large_brake": 120.0}
    assert braked(shifted(), slow=0, block=32, limits=limits).verdict is Verdict.UPHELD
    result = braked(shifted(), slow=0, block=32, limits=limits | {"reach": 1.0})
    assert (result.verdict, result.examples) == (Verdict.INCONCLUSIVE, 32)
    assert result.reason.startswith("stopped after 150 s at 32 of 256 draws")


def timed(clock, seconds):
    """A body that decides nothing; a block takes the next of ``seconds``, or the last of them."""
    undecided, blocks = shifted(0.0), iter(range(1000))

    def body(draws, sample):
        undecided(draws, sample)
        clock.sleep(seconds[min(next(blocks), len(seconds) - 1)])

    return body


@pytest.mark.parametrize(
    ("seconds", "examples", "why"),
    [
        ([31.0], 128, "stopped after 124 s, as the next look is 124 s away at 128 of 256 draws"),
        ([29.0], 256, "the interval"),
        # The first block may be one-time work.
        ([170.0, 10.0], 256, "the interval"),
        ([150.0, 15.0], 128, "stopped after 195 s, as the next look is 60 s away at 128"),
        ([170.0, 30.0], 64, "stopped after 200 s, as the next look is 60 s away at 64"),
        # What one slow block takes does not count against the others.
        ([10.0, 10.0, 80.0, 10.0], 256, "the interval"),
    ],
)
def test_a_finding_ends_where_its_next_look_is_too_far(monkeypatch, seconds, examples, why):
    clock = Time()
    monkeypatch.setattr("assay.harness.models.subject.clock.perf_counter", clock)
    result = settled(timed(clock, seconds), limits={"brake": 240.0}, draws=32, block=32)
    assert (result.examples, result.verdict) == (examples, Verdict.INCONCLUSIVE)
    assert result.reason.startswith(why)


def test_a_claim_has_as_many_draws_at_its_last_look_as_it_says():
    for draws_of_profile, last in [(256, 64), (1024, 256), (64, 32)]:
        result = settled(shifted(0.0), draws_of_profile, draws=32, most=64)
        assert result.examples == last


def test_looks_double():
    assert Plan(ABOVE, None, None, 64).looks(1024) == [64, 128, 256, 512, 1024]
    assert Plan(ABOVE, None, None, 64).looks(1000) == [64, 128, 256, 512]
    assert Plan(ABOVE, None, None, 64).looks(40) == [40]
    assert Plan(ABOVE, None, 100, 64).looks(256) == [100, 200]
    assert Plan(ABOVE, None, 1024, 64).looks(256) == [1024]
    assert Plan(Bound(mean, above=0.0), None, None, 64).looks(256) == [128, 256]


def test_a_costly_finding_is_drawn_and_looked_at_once():
    calls = []

    def body(draws, sample):
        calls.append(len(draws))
        sample.add(effect=np.zeros(len(draws)), control=np.full(len(draws), WRONG))

    result = settled(body, draws_of_profile=8192, costly=True)
    assert calls == [result.examples] == [Profile.prompts]


def test_other_profiles_draw_as_many_times_more_of_a_costly_finding():
    plan = Plan(ABOVE, None, 40, 64, costly=True)
    usual, more = (Profile("any", examples=1, shrink=0, prompts=n) for n in (24, 72))
    assert (plan.once(usual), plan.once(more)) == (40, 72)
    rare = Plan(ABOVE, None, Profile.prompts // 4, 64, costly=True)
    assert [rare.once(Profile("any", examples=1, shrink=0, prompts=n)) for n in (24, 72)] == [
        6,
        18,
    ]
    assert Plan(ABOVE, None, None, 64, costly=True).once(more) == 72


def test_a_body_is_asked_for_a_block_at_a_time():
    blocks = []

    def body(draws, sample):
        blocks.append(list(draws))
        shifted(0.0)(draws, sample)

    settled(body, draws_of_profile=100, block=40)
    assert blocks == [list(range(0, 40)), list(range(40, 64))]


def test_a_decided_effect_stays_decided_while_the_control_needs_more():
    def body(draws, sample):
        late = torch.tensor([i >= 64 for i in draws])
        effect = torch.where(late, 5 * WRONG, CLEAR)
        control = torch.where(late, WRONG, 0.0) + draws.normal()
        sample.add(effect=effect, control=control)

    result = settled(body)
    assert (result.verdict, result.observed) == (Verdict.UPHELD, CLEAR)
    assert result.examples > 64
    assert len(result.sample["effect"]) == result.examples
    assert np.median(result.sample["effect"]) < CLEAR


def test_the_error_is_shared_among_the_looks():
    confidences = []

    def interval(sample, confidence):
        confidences.append(confidence)
        return -1.0, 1.0

    watched = replace(median, interval=interval, caution=0.5)
    settled(shifted(), bound=Bound(watched, above=0.0))
    assert confidences == [1 - 0.5 * 0.05 / 3] * 6


def test_a_seed_repeats_its_sample_and_another_has_another():
    one, same, other = (settled(shifted(), seed=seed).sample["effect"] for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.isin(one, other).any()


def test_a_result_comes_back_from_json_as_it_was():
    def body(draws, sample):
        shifted()(draws, sample)
        sample.add(two_columns=draws.normal(2), with_a_gap=[math.nan] * len(draws))
        sample.plot("a picture", "curves", {"line": torch.ones(3, 2)}, x="x", log=True)
        sample.details["said"] = "by the body"

    result = settled(body)
    back = decode(encode(result), Result)
    assert encode(back) == encode(result)
    assert (back.kind, back.interval) == (result.kind, result.interval)
    assert set(back.sample) == {"effect", "control", "two_columns", "with_a_gap"}
    assert (back.plots[0].title, back.plots[0].log) == ("a picture", True)
    assert np.array_equal(back.plots[0].arrays["line"], np.ones((3, 2)))
    assert back.details["said"] == "by the body"
    assert set(back.details["recorded"]) == {"two_columns"}
