"""Controls of findings about inversion: each fails on descents that show what it looks for."""

from __future__ import annotations

import pytest

from assay.claims.inversion import test_inversion as untrained
from assay.claims.inversion import test_inversion_conditions as conditions
from assay.claims.inversion import test_inversion_tokens as tokens
from assay.claims.inversion import test_trained_inversion as trained
from assay.claims.inversion import test_trained_tokens as trained_tokens
from assay.claims.inversion.test_inversion import SCALED
from assay.fixtures import sides
from assay.harness.checking.bounds import NoDifference
from assay.harness.checking.statistics import bounded_change
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.constructed import constructed, fresh_side, settled

UPHELD, REFUTED, OPEN = Verdict.UPHELD, Verdict.REFUTED, Verdict.INCONCLUSIVE

EVERY = {"population": sides.EVERY}


def failed(result):
    """Whether the effect was decided and its control left the finding open."""
    return result.verdict is OPEN and result.reason.startswith("the control came out")


def test_e3_s_control_fails_where_as_much_is_recovered_in_one_step_as_in_1000(monkeypatch):
    claim, rising = untrained.test_more_is_inverted_in_1000_steps_than_in_100, [0.6, 1.0]
    for at_once in (0.0, 1.0):
        constructed(monkeypatch, lambda _, way: rising[way.steps > 100], at_once=at_once)
        result = settled(claim, way=SCALED)
        assert failed(result) if at_once else result.verdict is UPHELD


@pytest.mark.parametrize("other", [0.5, 0.0])
def test_e4_s_control_fails_where_one_start_recovers_less_than_another(monkeypatch, other):
    claim = untrained.test_depth_makes_inversion_harder
    constructed(monkeypatch, lambda _, way: 0.1 if way.depth > 1 else other if way.seed else 1.0)
    result = settled(claim, way=SCALED)
    assert failed(result)
    assert result.details["control sees a difference of"] > 0.3


def by_start(way):
    """What differs by start alone, as if starts were sizes or depths."""
    return 1.0 - 0.4 * way.seed


def test_e4_s_control_of_the_order_fails_where_starts_are_in_one(monkeypatch):
    claim = untrained.test_the_deeper_the_less_is_recovered
    constructed(monkeypatch, lambda _, way: by_start(way) if way.depth == 1 else 0.01)
    assert failed(settled(claim))


@pytest.mark.parametrize("quantity", ["steps", "repeats"])
def test_e15_s_controls_fail_where_starts_are_in_an_order(monkeypatch, quantity):
    def steps(model, way):
        return 10.0 * (3 + way.seed) if model.layers == 2 else 5.0

    def right(model, way):
        return 1.0 if model.layers > 2 else 0.2 * (1 + way.seed)

    constructed(monkeypatch, right, steps)
    claim = {
        "steps": tokens.test_bigger_models_need_fewer_steps,
        "repeats": tokens.test_what_is_found_of_bigger_models_repeats_less,
    }[quantity]
    result = settled(claim, way=SCALED)
    assert failed(result), (result.verdict, result.reason, result.interval)


HOW = {"place": "one block", "style": "as documented"}


def test_e6_s_control_fails_where_untrained_models_differ(monkeypatch):
    """By a third, which the control once allowed."""
    others, compared = set(), sides.compared

    def noted(*arguments):
        populations = compared(*arguments)
        others.update(id(sides.awake(model)) for model in populations[2].models)
        return populations

    monkeypatch.setattr(sides, "compared", noted)
    for share in (1.0, 0.7):

        def right(model, way, share=share):
            return 0.1 if not fresh_side(model) else share if id(model) in others else 1.0

        constructed(monkeypatch, right)
        result = settled(trained.test_trained_models_invert_worse, prompts=60, **EVERY, **HOW)
        assert failed(result) if share < 1 else result.verdict is UPHELD


def test_e14_s_control_fails_where_untrained_models_repeat_as_well(monkeypatch):
    claim = trained_tokens.test_gibberish_repeats
    constructed(monkeypatch, lambda model, _: 0.6 if fresh_side(model) else 0.0)
    assert failed(settled(claim, prompts=60, **EVERY, way=SCALED))


@pytest.mark.parametrize("other", [1.0, 0.8])
def test_e20_hangs_on_the_slip_and_its_control_on_the_start(monkeypatch, other):
    def right(model, way):
        return 0.3 if way.slip else other if way.seed else 1.0

    claim = conditions.test_every_position_at_row_0_recovers_less
    constructed(monkeypatch, right)
    result = settled(claim, prompts=48, way=SCALED)
    assert result.verdict is UPHELD if other == 1.0 else failed(result)


def test_e20_is_refuted_where_the_slip_recovers_more(monkeypatch):
    claim = conditions.test_every_position_at_row_0_recovers_less
    constructed(monkeypatch, lambda model, way: 1.0 if way.slip else 0.3)
    assert settled(claim, prompts=48, way=SCALED).verdict is REFUTED


@pytest.mark.parametrize(
    ("interval", "effect", "expected"),
    [
        ((-0.1, 0.2), -0.3, UPHELD),
        ((-0.1, 0.2), 0.3, UPHELD),
        ((-0.1, 0.2), 0.15, OPEN),  # too wide to tell the effect from none
        ((-0.4, 0.1), 0.3, OPEN),
        ((0.01, 0.2), 0.9, REFUTED),
        ((-0.2, -0.01), 0.9, REFUTED),
        ((-0.1, 0.2), float("nan"), OPEN),
    ],
)
def test_no_difference_is_0_inside_and_the_effect_outside(interval, effect, expected):
    assert NoDifference(bounded_change).verdict(interval, effect) is expected
