"""Statistics over models and prompts: the models are the units, few and alike or not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.harness.checking.bounds import Bound
from assay.harness.checking.model_statistics import NOWHERE, units
from assay.harness.checking.plans import ERROR
from assay.harness.checking.statistics import (
    bounded_mean,
    model_change,
    model_difference,
    model_mean,
    model_ratio,
)
from assay.harness.results.verdicts import Verdict

SAMPLES = 100


def recoveries(rng, models, prompts, mean, alike):
    """Shares of six tokens, [models × prompts, 2]: each model's own mean varies about ``mean``."""
    means = rng.beta(alike * mean, alike * (1 - mean), models)
    shares = rng.binomial(6, means[:, None], (models, prompts)) / 6
    return np.stack([shares.ravel(), np.repeat(np.arange(models), prompts)], axis=1)


def side(code, sample):
    return np.insert(sample, 1, code, axis=1)


def known(sample):
    """Values that are known: both limits are the value."""
    return np.insert(sample, 1, sample[:, 0], axis=1)


def misses(intervals, value):
    return np.mean([not low <= value <= high for low, high in intervals])


def interval(statistic, sample):
    """As a finding asks for it at its only look."""
    return statistic.interval(sample, 1 - ERROR * statistic.caution)


@pytest.mark.nightly
@pytest.mark.parametrize("mean", [0.5, 0.95])
def test_a_mean_over_models_is_outside_in_one_of_twenty_at_most(mean):
    rng = np.random.default_rng(0)
    samples = [recoveries(rng, 6, 4, mean, 4.0) for _ in range(SAMPLES)]
    assert misses([interval(model_mean, each) for each in samples], mean) <= ERROR


@pytest.mark.nightly
def test_prompts_taken_for_independent_miss_far_more_often():
    """What models have in common is no news: 72 prompts of six models are not 72 draws."""
    rng = np.random.default_rng(0)
    samples = [recoveries(rng, 6, 12, 0.5, 2.0) for _ in range(SAMPLES)]
    naive = [bounded_mean.interval(each[:, 0], 1 - ERROR) for each in samples]
    assert misses(naive, 0.5) > 3 * ERROR
    assert misses([interval(model_mean, each) for each in samples], 0.5) < 2 * ERROR


@pytest.mark.nightly
def test_a_ratio_of_models_is_outside_in_one_of_twenty_at_most():
    """Steps by model and prompt, both lognormal."""
    rng, intervals, spread, ratio = np.random.default_rng(0), [], 0.4, 10.0
    for _ in range(SAMPLES):
        parts = []
        for code, models, times in ((1, 5, ratio), (0, 6, 1.0)):
            of_models = np.exp(spread * rng.normal(size=(models, 1)))
            steps = 20 * times * of_models * np.exp(0.3 * rng.normal(size=(models, 6)))
            number = np.repeat(np.arange(models), 6)
            parts.append(side(code, np.stack([steps.ravel(), number], axis=1)))
        intervals.append(interval(model_ratio, known(np.concatenate(parts))))
    assert misses(intervals, ratio) <= ERROR


# Verdicts: both outcomes, and what is left open.


def alike(value, models, prompts):
    number = np.repeat(np.arange(models), prompts)
    return np.stack([np.full(models * prompts, value), number], axis=1)


def of_sides(one, other):
    return np.concatenate([side(1, one), side(0, other)])


BELOW = Bound(model_difference, below=0.0)


@pytest.mark.parametrize(
    ("trained", "fresh", "verdict"),
    [
        (0.0, 1.0, Verdict.UPHELD),
        (1.0, 0.0, Verdict.REFUTED),
        (1.0, 1.0, Verdict.INCONCLUSIVE),
        (0.9, 1.0, Verdict.INCONCLUSIVE),
    ],
)
def test_models_that_are_all_alike_decide_a_large_difference_only(trained, fresh, verdict):
    sample = of_sides(alike(trained, 5, 12), alike(fresh, 6, 10))
    assert BELOW.verdict(interval(model_difference, sample)) is verdict


def test_one_model_apart_from_the_others_leaves_a_difference_open():
    trained = alike(0.6, 5, 12)
    trained[trained[:, 1] == 0, 0] = 0.0
    sample = of_sides(trained, alike(0.7, 6, 10))
    assert BELOW.verdict(interval(model_difference, sample)) is Verdict.INCONCLUSIVE


def test_constant_samples_have_intervals_of_some_width():
    for statistic in (model_mean, model_change):
        low, high = interval(statistic, alike(0.0, 6, 6))
        assert low <= 0.0 < high
    low, high = interval(model_difference, of_sides(alike(0.0, 5, 12), alike(0.0, 6, 10)))
    assert low < 0.0 < high
    constant = known(of_sides(alike(9.0, 5, 6), alike(3.0, 6, 5)))
    assert interval(model_ratio, constant) == NOWHERE


def test_an_interval_holds_nothing_that_is_impossible():
    few = alike(1.0, 3, 4)
    few[few[:, 1] == 0, 0] = 0.5
    assert interval(model_mean, few)[1] == 1.0
    low, high = interval(model_difference, of_sides(few, alike(0.0, 3, 4)))
    assert (low >= -1.0, high) == (True, 1.0)


def test_a_side_that_does_not_vary_has_the_other_s_variance():
    """All of one side were cut off at the horizon."""
    rng = np.random.default_rng(0)
    fresh = alike(1.0, 6, 5)
    fresh[:, 0] = rng.integers(5, 12, 30)
    sample = known(of_sides(alike(2000.0, 5, 6), fresh))
    low, high = interval(model_ratio, sample)
    assert low < model_ratio(sample) < high
    assert math.log(high / low) > 0.1


def test_what_was_cut_off_upholds_that_more_steps_are_needed_and_cannot_refute_it():
    """At 1000 steps all of the first side were cut off: three times as many, or any number."""
    rng, above = np.random.default_rng(0), Bound(model_ratio, above=10.0)
    for steps, verdict in ((300.0, Verdict.INCONCLUSIVE), (20.0, Verdict.UPHELD)):
        fresh = alike(steps, 6, 5)
        fresh[:, 0] *= rng.uniform(0.9, 1.1, 30)
        limits = np.insert(alike(1000.0, 5, 6), 1, 1e9, axis=1)
        sample = np.concatenate([np.insert(limits, 2, 1, axis=1), side(0, fresh)[:, [0, 0, 1, 2]]])
        assert above.verdict(interval(model_ratio, sample)) is verdict
        cut_short = known(sample[:, [0, 2, 3]])  # the horizon taken for the number of steps
        shorter = above.verdict(interval(model_ratio, cut_short))
        assert shorter is (Verdict.REFUTED if steps == 300.0 else Verdict.UPHELD)


def test_of_one_model_the_prompts_are_the_units():
    values = np.random.default_rng(0).random(40)
    one = np.stack([values, np.zeros(40)], axis=1)
    assert model_mean(one) == pytest.approx(values.mean())
    assert model_mean.interval(one, 0.95) == bounded_mean.interval(values, 0.95)
    assert len(units(values, np.zeros(40))) == 40
    assert len(units(values, np.arange(40) % 5)) == 5


def test_models_count_alike_whatever_their_prompts():
    sample = np.array([[1.0, 0], [0.0, 1], [0.0, 1], [0.0, 1]])
    assert model_mean(sample) == 0.5
    ratio = np.array([[8.0, 1, 0], [2.0, 1, 1], [2.0, 0, 0], [2.0, 0, 1]])
    assert model_ratio(known(ratio)) == pytest.approx(2.0)


def test_a_side_that_is_missing_has_no_interval():
    one = side(1, alike(0.5, 3, 4))
    for statistic, sample in ((model_difference, one), (model_ratio, known(one))):
        assert statistic.interval(sample, 0.95) == NOWHERE
        assert math.isnan(statistic(sample))
